"""The web app: pages that are rendered here, one module per screen."""
