"""The one function that reaches a Ray cluster, an image of its own: Ray is larger than a Lambda package may be."""
