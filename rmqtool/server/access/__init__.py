"""Who may do what: access control as brokers of 4.9 have it (ACL 1.0), by plain_acl.yml."""
