//! What `daemon/diagnose` reports of a real agent.

use bridge_protocol::client::Call as _;
use bridge_protocol::diagnosis::{Diagnosis, DiagnosticKind, Severity};
use bridge_protocol::method::Diagnose;
use serde_json::Value;

use crate::bridge_of::{Bridge, Lab};
use crate::support::npm;

/// Who is signed in, as the agent reports it, and how severe that is. Everything else must be as it was
/// measured.
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
    // Each has exactly one; a version other than the one that the daemon was measured with would add another.
    assert_eq!(of(DiagnosticKind::Quirk).severity, Severity::Note);
    assert_eq!(of(DiagnosticKind::Transcripts).severity, Severity::Ok);
    let sign_in = of(DiagnosticKind::SignIn);
    (sign_in.data["authStatus"]["kind"].clone(), sign_in.severity)
}
