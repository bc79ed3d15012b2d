"""The pages: an HTTP application over a match database, and the browser front end it serves."""
