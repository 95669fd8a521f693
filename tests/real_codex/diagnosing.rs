//! What `sessionctl doctor` learns about the real adapter.
use bridge_protocol::diagnosis::Severity;

use super::bridge::Bridge;
use crate::sign_in::signed_in;

mod smoke {
    use super::*;

    /// A custom model provider counts as a sign-in.
    #[test]
    #[ignore = "installs the real adapter"]
    fn the_doctor_is_told_who_is_signed_in() {
        let bridge = or_skip!(Bridge::start());
        let (kind, severity) = signed_in(&bridge, "@agentclientprotocol/codex-acp");
        assert_eq!(
            (kind.as_str().expect("a kind"), severity),
            ("gateway", Severity::Ok)
        );
        // The agent process that was queried must still work afterwards.
        bridge.begun(&["hello"]);
    }
}
