//! Reads what `daemon/diagnose` reports about a real agent.

use bridge_protocol::diagnosis::{DiagnosticKind, Severity};
use bridge_protocol::method::Diagnose;
use serde_json::Value;

use crate::bridge_of::Bridge;
use crate::support::lab::Agent;
use crate::support::npm;

/// Returns who is signed in, as the agent reports it, and the severity of that diagnostic. Checks that all
/// other diagnostics of the agent are as expected.
pub(crate) fn signed_in<A: Agent>(bridge: &Bridge<A>, package: &str) -> (Value, Severity) {
    let told = bridge.answer(Diagnose::default());
    let of = |kind| {
        let all = told.diagnostics.iter();
        let mut all = all.filter(|one| one.kind == kind && one.subject.as_deref() == Some(A::NAME));
        let one = all.next().unwrap_or_else(|| panic!("{kind:?}: {told:#?}"));
        assert!(all.next().is_none(), "{kind:?}: {told:#?}");
        one.clone()
    };
    let agent = of(DiagnosticKind::Agent);
    let version = npm::version_of(package).expect("a version that the tests install");
    assert_eq!(
        (agent.severity, &agent.data["version"]),
        (Severity::Ok, &version.into())
    );
    for offer in ["load", "resume", "fork", "list", "close", "delete", "images"] {
        let offers = agent.data["offers"].as_array().expect("offers");
        assert!(offers.contains(&offer.into()), "{offer}: {offers:?}");
    }
    // There is exactly one of each. A version that the daemon was not measured with would add another.
    assert_eq!(of(DiagnosticKind::Quirk).severity, Severity::Note);
    assert_eq!(of(DiagnosticKind::Transcripts).severity, Severity::Ok);
    let sign_in = of(DiagnosticKind::SignIn);
    (sign_in.data["authStatus"]["kind"].clone(), sign_in.severity)
}
