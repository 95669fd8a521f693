//! The cost of scanning one line of an agent, which applies to each update.

use session_bridge::agent::envelope::Envelope;

use crate::Outcome;
use crate::options::Options;
use crate::report::{Limit, Report, Row};
use crate::sample::{median, timed_us};

/// Scans in one run.
const LOOKS: u64 = 400_000;

/// A line as Claude's adapter writes it.
const UPDATE: &str = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"8f0a2c1e-3b7d-4c55-9a51-0d2f6b7c8e90","update":{"sessionUpdate":"agent_message_chunk","messageId":"msg_01AbCdEfGhIjKlMnOpQrSt","content":{"type":"text","text":"The function reads the file in one go, so a long file is held twice. \nBetter: stream it."}}}}"#;

/// Runs this scenario.
pub(crate) fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    let looks = options.rounds(LOOKS);
    let bytes = UPDATE.as_bytes();
    let (mut ours, mut floors) = (Vec::new(), Vec::new());
    for _ in 0..options.runs {
        ours.push(nanoseconds(looks, || {
            let envelope = Envelope::scan_bytes(std::hint::black_box(bytes)).ok()?;
            Some((
                envelope.session_id()?.len(),
                envelope.update_kind()?.len(),
                envelope.to_line(),
            ))
        })?);
        floors.push(nanoseconds(looks, || {
            serde_json::from_slice::<serde_json::Value>(std::hint::black_box(bytes)).ok()
        })?);
    }
    report.add(Row {
        what: format!(
            "a look at a line of {} bytes: id, kind, copy into a line",
            bytes.len()
        ),
        ours: median(&ours),
        floor: None,
        limit: Limit::Unset,
        unit: "ns",
        note: format!("parsing it with serde_json: {:.0} ns", median(&floors)),
    });
    Ok(())
}

fn nanoseconds<T>(looks: u64, look: impl Fn() -> Option<T>) -> Outcome<f64> {
    let (looked, took_us) = timed_us(|| (0..looks).try_for_each(|_| std::hint::black_box(look()).map(drop)));
    looked.ok_or("the line was not understood")?;
    Ok(took_us * 1_000.0 / looks as f64)
}
