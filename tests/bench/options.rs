//! What the command line asks for.

use std::path::PathBuf;

use crate::{Outcome, scenario};

/// The argument with which this program becomes the agent that streams updates.
pub(crate) const AGENT: &str = "be-agent";
/// The argument with which it becomes the splice; a socket path follows.
pub(crate) const SPLICE: &str = "be-splice";
/// The argument with which it becomes the process that gives one answer; a socket path and a length follow.
pub(crate) const ANSWER: &str = "be-answer";

/// The argument with which it becomes the process that makes the index of a transcript; its path follows.
pub(crate) const INDEX: &str = "be-index";
/// The argument with which it becomes the process that checks a transcript; its path follows.
pub(crate) const CHECK: &str = "be-check";
/// The argument with which it becomes the process that cuts a transcript; its path and the uuid of a record
/// follow.
pub(crate) const CUT: &str = "be-cut";
/// The argument with which it becomes the process that copies a transcript line by line; the same follow.
pub(crate) const COPY: &str = "be-copy";
/// The argument with which it becomes the process that only reads a file; its path follows.
pub(crate) const READ: &str = "be-read";

/// What this process is.
pub(crate) enum Role {
    /// The one that measures.
    Bench(Options),
    /// See [`AGENT`].
    Agent,
    /// See [`SPLICE`].
    Splice(PathBuf),
    /// See [`ANSWER`].
    Answer(PathBuf, usize),
    /// See [`INDEX`].
    Index(PathBuf),
    /// See [`CHECK`].
    Check(PathBuf),
    /// See [`CUT`].
    Cut(PathBuf, String),
    /// See [`COPY`].
    Copy(PathBuf, String),
    /// See [`READ`].
    Read(PathBuf),
}

/// How to measure.
#[derive(Debug)]
pub(crate) struct Options {
    /// Only these scenarios; all when empty.
    scenarios: Vec<String>,
    /// How often a scenario runs; the median counts.
    pub(crate) runs: usize,
    /// How often one thing is done in a run, as a divisor of the usual number.
    pub(crate) divisor: u64,
    /// Whether a limit that is passed makes the command fail.
    pub(crate) check: bool,
}

impl Role {
    /// Reads the arguments behind the program's name.
    pub(crate) fn read(arguments: impl Iterator<Item = String>) -> Outcome<Self> {
        let mut options = Options {
            scenarios: Vec::new(),
            runs: 5,
            divisor: 1,
            check: false,
        };
        let mut arguments = arguments;
        let missing = || "an argument is missing";
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                AGENT => return Ok(Self::Agent),
                SPLICE => return Ok(Self::Splice(arguments.next().ok_or_else(missing)?.into())),
                ANSWER => {
                    let socket = arguments.next().ok_or_else(missing)?.into();
                    let bytes = arguments.next().ok_or_else(missing)?.parse()?;
                    return Ok(Self::Answer(socket, bytes));
                }
                INDEX => return Ok(Self::Index(arguments.next().ok_or_else(missing)?.into())),
                CHECK => return Ok(Self::Check(arguments.next().ok_or_else(missing)?.into())),
                CUT | COPY => {
                    let path = arguments.next().ok_or_else(missing)?.into();
                    let uuid = arguments.next().ok_or_else(missing)?;
                    return Ok(match argument.as_str() {
                        CUT => Self::Cut(path, uuid),
                        _ => Self::Copy(path, uuid),
                    });
                }
                READ => return Ok(Self::Read(arguments.next().ok_or_else(missing)?.into())),
                // Cargo adds this to what it runs as a benchmark.
                "--bench" => {}
                "--check" => options.check = true,
                "--quick" => (options.runs, options.divisor) = (3, 10),
                "--runs" => options.runs = arguments.next().ok_or_else(missing)?.parse::<usize>()?.max(1),
                name if scenario::ALL.iter().any(|scenario| scenario.name == name) => {
                    options.scenarios.push(argument);
                }
                other => {
                    let known: Vec<&str> = scenario::ALL.iter().map(|scenario| scenario.name).collect();
                    let known = known.join(", ");
                    return Err(format!(
                        "\"{other}\" is neither a scenario ({known}) nor --quick, --check or --runs N"
                    )
                    .into());
                }
            }
        }
        Ok(Self::Bench(options))
    }
}

impl Options {
    /// Whether this scenario was asked for.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.scenarios.is_empty() || self.scenarios.iter().any(|wanted| wanted == name)
    }

    /// How often one thing is done, of a usual number.
    pub(crate) fn rounds(&self, usual: u64) -> u64 {
        (usual / self.divisor).max(1)
    }
}
