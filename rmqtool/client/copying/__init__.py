"""Messages of elsewhere, sent to a cluster once each."""
