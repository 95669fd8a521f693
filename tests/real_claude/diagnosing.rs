//! What `sessionctl doctor` learns about the real adapter.

use bridge_protocol::diagnosis::Severity;

use super::bridge::Bridge;
use crate::sign_in::signed_in;
use crate::support::claude::Account;

mod smoke {
    use super::*;

    /// The agent does not report a token in the environment as a sign-in, although it works. So that is a
    /// warning and not an error.
    #[test]
    #[ignore = "installs the real adapter"]
    fn the_doctor_is_told_who_is_signed_in() {
        for (account, expected) in [
            (Account::Key, ("api_key", Severity::Ok)),
            (Account::Subscription, ("none", Severity::Warning)),
        ] {
            let bridge = or_skip!(Bridge::start(account));
            let (kind, severity) = signed_in(&bridge, "@agentclientprotocol/claude-agent-acp");
            assert_eq!((kind.as_str().expect("a kind"), severity), expected);
            // The agent process that was queried must still work afterwards.
            let id = bridge.conversation(bridge_protocol::conversation::Settings::default());
            bridge.prompted(id, "hello");
        }
    }
}
