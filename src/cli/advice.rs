//! Commands in hints, as the user types them in a shell or in a chat.

use super::args;
use crate::paths::shell_quoted;

/// Commands about one conversation that exist in a shell and in its chat. [`Output`](super::output::Output) adds the options that
/// name the daemon when it prints them.
#[derive(Clone, Debug)]
pub(super) struct Advice {
    /// The conversation, as a word of a shell.
    pub(super) conversation: String,
    /// Whether the user is in the chat of this conversation.
    in_chat: bool,
}

impl Advice {
    /// Creates advice about this conversation, for its chat or for a shell.
    pub(super) fn new(conversation: impl Into<String>, in_chat: bool) -> Self {
        Self {
            conversation: conversation.into(),
            in_chat,
        }
    }

    /// Answers the open question with these words.
    pub(super) fn answer(&self, words: &str) -> String {
        self.same_command("answer", words)
    }

    /// Lists the turns.
    pub(super) fn checkpoints(&self) -> String {
        self.command("checkpoints", "", "/rewind")
    }

    /// Continues, with these options, the turn that was cut short.
    pub(super) fn continue_turn(&self, options: &str) -> String {
        self.same_command("continue", options)
    }

    /// Replaces this turn.
    pub(super) fn edit(&self, turn: &str) -> String {
        self.command(
            "edit",
            &format!("--at {turn} 'Hello'"),
            &format!("/edit {turn} Hello"),
        )
    }

    /// Branches off after this turn.
    pub(super) fn fork(&self, turn: &str) -> String {
        self.command("fork", &format!("--at {turn}"), &format!("/fork {turn}"))
    }

    /// Shows the messages.
    pub(super) fn history(&self) -> String {
        self.same_command("history", "")
    }

    /// Sends this prompt.
    pub(super) fn send(&self, prompt: &str) -> String {
        self.command("send", &shell_quoted(prompt), prompt)
    }

    /// Sets this key to this value, which is quoted for a shell.
    pub(super) fn set(&self, key: &str, value: &str) -> String {
        self.command("set", &format!("{key}={value}"), &format!("/{key} {value}"))
    }

    /// Undoes the last change.
    pub(super) fn undo(&self) -> String {
        self.same_command("undo", "")
    }

    /// A command that takes the same words in a shell and in a chat.
    fn same_command(&self, name: &str, words: &str) -> String {
        self.command(name, words, &format!("/{name} {words}"))
    }

    fn command(&self, name: &str, words: &str, in_chat: &str) -> String {
        match self.in_chat {
            true => in_chat.trim_end().to_owned(),
            false => format!("sessionctl {name} {} {words}", self.conversation)
                .trim_end()
                .to_owned(),
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
