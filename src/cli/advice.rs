//! Commands in hints, as the user types them in a shell or in a chat.

use super::args;
use crate::paths::shell_quoted;

/// A command about one conversation that also exists in a chat.
#[derive(Clone, Copy, Debug)]
pub(super) enum SuggestedCommand<'a> {
    /// Answers the open question with these words.
    Answer(&'a str),
    /// Lists the turns.
    Checkpoints,
    /// Continues the interrupted turn with these options.
    Continue(&'a str),
    /// Replaces this turn.
    Edit(&'a str),
    /// Branches off after this turn.
    Fork(&'a str),
    /// Shows the messages.
    History,
    /// Sends these words.
    Send(&'a str),
    /// Sets this key to this value.
    Set(&'a str, &'a str),
    /// Undoes the last change.
    Undo,
}

/// The conversation that advice is about, and where the user types the commands that it names.
#[derive(Clone, Debug)]
pub(super) struct Advice {
    /// The conversation, as a word of a shell.
    pub(super) conversation: String,
    /// Whether the user is in the chat of this conversation.
    in_chat: bool,
    /// The options that name the daemon, as words of a shell.
    options: String,
}

impl Advice {
    /// Creates advice about this conversation, for its chat or for a shell.
    pub(super) fn new(conversation: impl Into<String>, in_chat: bool) -> Self {
        Self {
            conversation: conversation.into(),
            in_chat,
            options: String::new(),
        }
    }

    /// Adds the options with which the user named the daemon.
    pub(super) fn with_options(self, options: &str) -> Self {
        Self {
            options: options.to_owned(),
            ..self
        }
    }

    /// The command as the user types it.
    pub(super) fn command(&self, call: SuggestedCommand<'_>) -> String {
        let id = &self.conversation;
        let (shell, chat) = match call {
            SuggestedCommand::Answer(words) => (format!("answer {id} {words}"), format!("/answer {words}")),
            SuggestedCommand::Checkpoints => (format!("checkpoints {id}"), "/rewind".to_owned()),
            SuggestedCommand::Continue(options) => {
                (format!("continue {id} {options}"), format!("/continue {options}"))
            }
            SuggestedCommand::Edit(turn) => (
                format!("edit {id} --at {turn} 'Hello'"),
                format!("/edit {turn} Hello"),
            ),
            SuggestedCommand::Fork(turn) => (format!("fork {id} --at {turn}"), format!("/fork {turn}")),
            SuggestedCommand::History => (format!("history {id}"), "/history".to_owned()),
            SuggestedCommand::Send(prompt) => {
                (format!("send {id} {}", shell_quoted(prompt)), prompt.to_owned())
            }
            SuggestedCommand::Set(key, value) => {
                (format!("set {id} {key}={value}"), format!("/{key} {value}"))
            }
            SuggestedCommand::Undo => (format!("undo {id}"), "/undo".to_owned()),
        };
        match self.in_chat {
            true => chat.trim_end().to_owned(),
            false => with_daemon_options(&format!("sessionctl {}", shell.trim_end()), &self.options),
        }
    }
}

/// Adds the options that name the daemon to the commands in a text of this program, so that they can be pasted. Words quoted
/// for a shell are not changed.
pub(super) fn with_daemon_options(text: &str, options: &str) -> String {
    if options.is_empty() {
        return text.to_owned();
    }
    let (mut shown, mut quote) = (String::new(), None);
    let mut words = text.split_inclusive([' ', '\n']).peekable();
    while let Some(word) = words.next() {
        shown.push_str(word);
        let first = word.rsplit('=').next().and_then(|value| value.chars().next());
        if let Some(mark) = quote.or(first.filter(|first| ['\'', '"'].contains(first))) {
            let marks = word.matches(mark).count() - word.matches(&format!("\\{mark}")).count();
            quote = (quote.is_some() ^ (marks % 2 == 1)).then_some(mark);
        } else if word.trim_start_matches('(') == "sessionctl "
            && let Some(next) = words.peek()
            && args::is_command(next.trim_end_matches(|end: char| !end.is_alphanumeric()))
        {
            shown.push_str(&format!("{options} "));
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::with_daemon_options;

    #[test]
    fn commands_of_our_own_have_the_options() {
        for (text, expected) in [
            (
                "Undo with: sessionctl undo 5d",
                "Undo with: sessionctl -S undo 5d",
            ),
            (
                "(sessionctl status, sessionctl ls)",
                "(sessionctl -S status, sessionctl -S ls)",
            ),
            (
                "run sessionctl stop; the agent's",
                "run sessionctl -S stop; the agent's",
            ),
            ("this sessionctl is 1.2", "this sessionctl is 1.2"),
            ("sessionctl --home x ls", "sessionctl --home x ls"),
            (
                r"sessionctl send 5d 'it'\''s: sessionctl ls' or sessionctl ls",
                r"sessionctl -S send 5d 'it'\''s: sessionctl ls' or sessionctl -S ls",
            ),
            ("title='now sessionctl ls'", "title='now sessionctl ls'"),
            (
                "no \"sessionctl ls\" or \"a sessionctl ls\"",
                "no \"sessionctl ls\" or \"a sessionctl ls\"",
            ),
        ] {
            assert_eq!(with_daemon_options(text, "-S"), expected);
        }
    }
}
