"""The job API over HTTP: routes, requests, responses, submission of jobs and dead letters.

Each file of `routes/` holds one resource, with a table of its routes at the end. A route is a function of
`dependencies.Dependencies` and `request.Request`. The table also says which role a route needs and how openapi.json
describes the route. This package does not depend on Lambda or API Gateway.
"""
