//! Reads what `daemon/diagnose` reports about a real agent.

use bridge_protocol::client::Call as _;
use bridge_protocol::diagnosis::{Diagnosis, DiagnosticKind, Severity};
use bridge_protocol::method::Diagnose;
use serde_json::Value;

use crate::bridge_of::{Bridge, Lab};
use crate::support::npm;

/// Returns who is signed in, as the agent reports it, and the severity of that diagnostic. Checks that all
/// other diagnostics of the agent are as expected.
pub(crate) fn signed_in<L: Lab>(bridge: &Bridge<L>, package: &str) -> (Value, Severity) {
    let client = bridge.client();
    let told: Diagnosis = bridge
        .call(async move { client.call(Diagnose::default()).await })
        .expect("daemon/diagnose");
    let of = |kind| {
        let all = told.diagnostics.iter();
        let mut all = all.filter(|one| one.kind == kind && one.subject.as_deref() == Some(L::AGENT));
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
