//! The findings of a check in progress.

use std::collections::HashMap;

use bridge_protocol::check::{Finding, FindingKind};

use super::{CheckReport, FINDINGS_OF_A_KIND_LIMIT};

/// The findings of one check, for any format.
#[derive(Debug, Default)]
pub(in crate::transcript) struct Findings {
    report: CheckReport,
    /// The number of findings of each kind.
    counts: HashMap<FindingKind, usize>,
}

impl Findings {
    /// Adds a finding. Those of a kind beyond [`FINDINGS_OF_A_KIND_LIMIT`] are only counted.
    pub(in crate::transcript) fn add(&mut self, line: u64, kind: FindingKind, detail: impl Into<String>) {
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        if *count > FINDINGS_OF_A_KIND_LIMIT {
            self.report.omitted += 1;
            return;
        }
        let detail = detail.into();
        self.report.findings.push(Finding { line, kind, detail });
    }

    /// Adds a finding that makes the agent refuse to resume the session.
    pub(in crate::transcript) fn add_refusal(
        &mut self,
        line: u64,
        kind: FindingKind,
        detail: impl Into<String>,
    ) {
        let detail = detail.into();
        self.report.refusals.push(Finding {
            line,
            kind,
            detail: detail.clone(),
        });
        self.add(line, kind, detail);
    }

    /// All findings, in the order of the lines.
    pub(in crate::transcript) fn into_report(mut self) -> CheckReport {
        self.report.findings.sort_by_key(|finding| finding.line);
        self.report
    }
}
