//! Asks the user for confirmation before something is deleted.

use std::io::{self, BufRead, IsTerminal, Write};

use super::commands::Context;
use super::output::{ATTENTION, one_line};
use super::problem::{CommandResult, Exit, Problem};
use crate::paths::shell_word;

/// What a command does if there is no terminal to ask for confirmation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoTerminalPolicy {
    /// It proceeds: the change can be undone.
    Proceed,
    /// It needs `--yes`.
    RequireYes,
}

/// The arguments of this process, quoted for a shell.
fn this_command() -> String {
    let words = std::env::args_os().skip(1);
    let words = words.map(|word| shell_word(&word.to_string_lossy()));
    words.collect::<Vec<_>>().join(" ")
}

impl Context<'_> {
    /// Asks the user whether a command should proceed. `what` describes the action without a full stop: "Delete …".
    ///
    /// # Errors
    /// The user declined; or there is no terminal and `--yes` is required.
    pub(super) fn confirm(&self, what: &str, unasked: NoTerminalPolicy) -> CommandResult {
        if self.yes {
            return Ok(());
        }
        if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
            return match unasked {
                NoTerminalPolicy::Proceed => Ok(()),
                NoTerminalPolicy::RequireYes => Err(Problem::new(
                    Exit::Usage,
                    format!("without a terminal this needs --yes: {what}"),
                )
                .hint(format!("act without asking: sessionctl --yes {}", this_command()))),
            };
        }
        let question = self
            .output
            .note_look
            .paint(ATTENTION, &format!("{}?", one_line(what)));
        let mut answer = String::new();
        let asked = write!(io::stderr(), "{question} [y/N] ")
            .and_then(|()| io::stdin().lock().read_line(&mut answer))
            // Ctrl-D does not end the line.
            .and_then(|_| match answer.ends_with('\n') {
                true => Ok(()),
                false => writeln!(io::stderr()),
            });
        asked.map_err(|error| Problem::new(Exit::Failed, format!("cannot ask on this terminal: {error}")))?;
        match answer.trim().to_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Err(Problem::new(Exit::Failed, "cancelled; nothing was changed")),
        }
    }
}
