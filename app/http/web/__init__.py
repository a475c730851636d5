"""What all HTTP interfaces share: problem+json, body limits, API keys, request ids."""
