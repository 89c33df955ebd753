"""The web app: server-rendered pages, one module per screen."""
