//! The wire contract of session-bridge.
