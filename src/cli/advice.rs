//! Commands that advice names: as they are typed in a shell, or in a chat.

/// A command about one conversation that a chat has too.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call<'a> {
    /// Answers the open question, with these words.
    Answer(&'a str),
    /// Lists the turns.
    Checkpoints,
    /// Continues the interrupted turn, with these options.
    Continue(&'a str),
    /// Branches off after this turn.
    Fork(&'a str),
    /// Shows what was said.
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
}

impl Advice {
    /// Advice about this conversation, in its chat or in a shell.
    pub(super) fn new(conversation: impl Into<String>, in_chat: bool) -> Self {
        Self {
            conversation: conversation.into(),
            in_chat,
        }
    }

    /// The command as the user types it.
    pub(super) fn command(&self, call: Call<'_>) -> String {
        let id = &self.conversation;
        let (shell, chat) = match call {
            Call::Answer(words) => (format!("answer {id} {words}"), format!("/answer {words}")),
            Call::Checkpoints => (format!("checkpoints {id}"), "/rewind".to_owned()),
            Call::Continue(options) => (format!("continue {id} {options}"), format!("/continue {options}")),
            Call::Fork(turn) => (format!("fork {id} --at {turn}"), format!("/fork {turn}")),
            Call::History => (format!("history {id}"), "/history".to_owned()),
            Call::Send(prompt) => (format!("send {id} '{prompt}'"), prompt.to_owned()),
            Call::Set(key, value) => (format!("set {id} {key}={value}"), format!("/{key} {value}")),
            Call::Undo => (format!("undo {id}"), "/undo".to_owned()),
        };
        match self.in_chat {
            true => chat.trim_end().to_owned(),
            false => format!("sessionctl {}", shell.trim_end()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Advice, Call};

    #[test]
    fn a_chat_names_its_own_commands() {
        let [shell, chat] = [false, true].map(|in_chat| Advice::new("5d0c2a4e", in_chat));
        for (call, in_shell, in_chat) in [
            (Call::Answer(""), "answer 5d0c2a4e", "/answer"),
            (Call::Answer("allow"), "answer 5d0c2a4e allow", "/answer allow"),
            (Call::Checkpoints, "checkpoints 5d0c2a4e", "/rewind"),
            (Call::Continue(""), "continue 5d0c2a4e", "/continue"),
            (
                Call::Continue("--at-reset"),
                "continue 5d0c2a4e --at-reset",
                "/continue --at-reset",
            ),
            (Call::Fork("-2"), "fork 5d0c2a4e --at -2", "/fork -2"),
            (Call::History, "history 5d0c2a4e", "/history"),
            (Call::Send("Hello"), "send 5d0c2a4e 'Hello'", "Hello"),
            (Call::Set("mode", "plan"), "set 5d0c2a4e mode=plan", "/mode plan"),
            (Call::Undo, "undo 5d0c2a4e", "/undo"),
        ] {
            assert_eq!(shell.command(call), format!("sessionctl {in_shell}"));
            assert_eq!(chat.command(call), in_chat);
        }
    }
}
