"""Access control as in brokers of 4.9 (ACL 1.0), by plain_acl.yml."""
