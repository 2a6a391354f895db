"""The job side of the HTTP API: one file for each resource, with its routes in a table at its end.

A route is a function of what it reaches (`desk.Desk`) and what was asked (`exchange.Request`); what it needs of a
caller, and what openapi.json says of it, stand beside it. Nothing here knows Lambda or API Gateway.
"""
