//! The options on the command line.

use std::path::PathBuf;

use crate::{Outcome, scenario};

/// The argument with which this program runs as the agent that streams updates.
pub(crate) const AGENT: &str = "be-agent";
/// The argument for running as the splice; a socket path follows.
pub(crate) const SPLICE: &str = "be-splice";
/// The argument for running as a process that always gives the same answer; a socket path and a length
/// follow.
pub(crate) const ANSWER: &str = "be-answer";

/// The argument for running as a process that indexes a transcript; its path follows.
pub(crate) const INDEX: &str = "be-index";
/// The argument for running as a process that checks a transcript; its path follows.
pub(crate) const CHECK: &str = "be-check";
/// The argument for running as a process that cuts a transcript; its path and the uuid of a record follow.
pub(crate) const CUT: &str = "be-cut";
/// The argument for running as a process that copies a transcript line by line; its path and the uuid of a
/// record follow.
pub(crate) const COPY: &str = "be-copy";
/// The argument for running as a process that only reads a file; its path follows.
pub(crate) const READ: &str = "be-read";

/// The role of this process.
pub(crate) enum Role {
    /// The process that measures.
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
    /// The scenarios to run; all if empty.
    scenarios: Vec<String>,
    /// The number of runs per scenario, of which the median is reported.
    pub(crate) runs: usize,
    /// The divisor for the number of rounds in a run.
    pub(crate) divisor: u64,
    /// Whether the command fails if a limit is exceeded.
    pub(crate) check: bool,
}

impl Role {
    /// Parses the arguments after the program's name.
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
                // Cargo passes this argument to benchmarks.
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
    /// Whether this scenario is to run.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.scenarios.is_empty() || self.scenarios.iter().any(|wanted| wanted == name)
    }

    /// The number of rounds to run, given the usual number.
    pub(crate) fn rounds(&self, usual: u64) -> u64 {
        (usual / self.divisor).max(1)
    }
}
