"""Models of the bodies that the job API receives and sends (pydantic).

`docs/openapi.json` is generated from them. A function imports the models of requests when it reads the first body, and
never those of responses: an answer is not validated again (docs/decisions/0053-pydantic-where-a-body-is-read.md).
"""
