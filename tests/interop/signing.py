"""Real brokers that ask for signatures."""

import json

_PACKAGE = "org.apache.rocketmq.auth"


def demand_signatures(access_key: str, secret_key: str) -> dict[str, str]:
    """Return settings with which a 5.x broker knows this administrator alone and refuses what is not signed."""
    return {
        "authenticationEnabled": "true",
        "authenticationMetadataProvider": f"{_PACKAGE}.authentication.provider.LocalAuthenticationMetadataProvider",
        "authorizationEnabled": "true",
        "authorizationMetadataProvider": f"{_PACKAGE}.authorization.provider.LocalAuthorizationMetadataProvider",
        "initAuthenticationUser": json.dumps({"username": access_key, "password": secret_key}),
        "innerClientAuthenticationCredentials": json.dumps({"accessKey": access_key, "secretKey": secret_key}),
    }
