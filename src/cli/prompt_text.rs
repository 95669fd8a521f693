//! Extracts what a user typed from a prompt in a transcript.
//!
//! It owns the markup that agents add: for attached files, and for Claude Code's own commands and their output. Pure.

/// The beginning and the end of the text into which agents convert an attached file.
const ATTACHED: &str = "<context ref=\"";
const ATTACHED_END: &str = "</context>";

/// The readable text of a prompt: a command as it was typed, and the name of each attached file in place of its content. The
/// end of a long prompt may be missing.
pub(super) fn readable_prompt(prompt: &str) -> String {
    if let Some(tagged) = untagged(prompt) {
        return tagged.text();
    }
    let (mut words, mut rest) = (String::new(), prompt);
    while let Some(at) = rest.find(ATTACHED) {
        let (before, file) = rest.split_at(at);
        words.push_str(before);
        let tag = &file[ATTACHED.len()..];
        let is_cut = tag.starts_with("file://") && !tag.contains('"');
        rest = match attached_file(file) {
            None if !is_cut => {
                words.push_str(ATTACHED);
                tag
            }
            path => {
                words.extend(path.map(|path| format!("@{path} ")));
                file.split_once(ATTACHED_END).map_or("", |(_, after)| after)
            }
        };
    }
    words + rest
}

/// The path of an attached file, from the text that agents make of it: `<context ref="file:///PATH">`, its content, and the
/// end.
pub(super) fn attached_file(text: &str) -> Option<String> {
    let (uri, _) = text.trim_start().strip_prefix(ATTACHED)?.split_once("\">\n")?;
    let path = uri.strip_prefix("file://").filter(|path| !path.contains('"'))?;
    let mut parts = path.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let code = part.get(..2).and_then(|code| u8::from_str_radix(code, 16).ok());
        let plain = match code {
            Some(byte) => {
                bytes.push(byte);
                &part[2..]
            }
            None => {
                bytes.push(b'%');
                part
            }
        };
        bytes.extend(plain.as_bytes());
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// A text without the tags that Claude Code added. Either part may be empty.
#[derive(Default)]
pub(super) struct Untagged {
    /// A command with its arguments, a line for the shell, or the summary of a notification.
    pub(super) typed: String,
    /// The output of a command.
    pub(super) output: String,
}

impl Untagged {
    /// Both parts.
    pub(super) fn text(self) -> String {
        match (self.typed, self.output) {
            (words, empty) | (empty, words) if empty.is_empty() => words,
            (typed, output) => format!("{typed}\n{output}"),
        }
    }
}

/// Removes the tags of Claude Code's commands, shell lines and notifications (2.1.316). Returns `None` if the text contains
/// anything else. The end of the text may be missing.
pub(super) fn untagged(text: &str) -> Option<Untagged> {
    let whole = text.trim();
    let (mut found, mut rest) = (Untagged::default(), whole);
    while !rest.is_empty() {
        let Some((tag, inner)) = rest.strip_prefix('<')?.split_once('>') else {
            // The text ends within this tag.
            return (rest.len() < whole.len()).then_some(found);
        };
        let (body, after) = inner.split_once(&format!("</{tag}>")).unwrap_or((inner, ""));
        let body = body.trim();
        match tag {
            "command-name" => found.typed.insert_str(0, body),
            "command-args" if !body.is_empty() => found.typed.extend([" ", body]),
            // The name of the command again, or text for the model.
            "command-args" | "command-message" | "local-command-caveat" => {}
            "bash-input" => found.typed = format!("! {body}"),
            "task-notification" => {
                let (_, summary) = body.split_once("<summary>")?;
                found.typed = summary.split_once("</summary>")?.0.to_owned();
            }
            "local-command-stdout" | "local-command-stderr" | "bash-stdout" | "bash-stderr" => {
                let gap = if found.output.is_empty() || body.is_empty() {
                    ""
                } else {
                    "\n"
                };
                found.output.extend([gap, &plain(body)]);
            }
            _ => return None,
        }
        rest = after.trim_start();
    }
    Some(found)
}

/// Unescapes the output of a command: Claude Code escapes text that could be a tag.
fn plain(output: &str) -> String {
    let marks = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#x27;", "'"),
        ("&#39;", "'"),
        ("&amp;", "&"),
    ];
    marks.iter().fold(output.to_owned(), |text, (escaped, mark)| {
        text.replace(escaped, mark)
    })
}

#[cfg(test)]
mod tests {
    use super::readable_prompt;

    #[test]
    fn an_attached_file_is_shown_by_its_name() {
        for (prompt, words) in [
            ("plain <context>", "plain <context>"),
            ("why <context ref=\"x\"> here?", "why <context ref=\"x\"> here?"),
            (
                "see @a.md\n<context ref=\"file:///x/a%20b.md\">\nsecret\n</context>\nand more",
                "see @a.md\n@/x/a b.md \nand more",
            ),
            ("see\n<context ref=\"file:///a\">\nsecret", "see\n@/a "),
            ("see\n<context ref=\"file:///long/na", "see\n"),
        ] {
            assert_eq!(readable_prompt(prompt), words, "{prompt}");
        }
    }

    #[test]
    fn a_command_is_shown_as_it_was_typed() {
        for (prompt, words) in [
            (
                "<command-message>init is analyzing</command-message>\n<command-name>/init</command-name>",
                "/init",
            ),
            (
                "<command-message>a:b</command-message>\n<command-name>/a:b</command-name>\n<command-args>x\ny</command-args>",
                "/a:b x\ny",
            ),
            (
                "<command-name>/a</command-name>\n<command-args>a long pro",
                "/a a long pro",
            ),
            ("<command-name>/a</command-name>\n<command-ar", "/a"),
            ("<bash-input> ls -l</bash-input>", "! ls -l"),
            (
                "<bash-stdout>a &lt;b&gt; &amp;lt;</bash-stdout><bash-stderr>no</bash-stderr>",
                "a <b> &lt;\nno",
            ),
            ("<local-command-stdout></local-command-stdout>", ""),
            (
                "<task-notification>\n<task-id>1</task-id>\n<summary>Agent ended</summary>\n</task-notification>",
                "Agent ended",
            ),
            // Words of a user.
            ("<command-line tools", "<command-line tools"),
            (
                "<bash-input>ls</bash-input> lists",
                "<bash-input>ls</bash-input> lists",
            ),
            ("<b>bold</b>", "<b>bold</b>"),
            ("<3", "<3"),
        ] {
            assert_eq!(readable_prompt(prompt), words, "{prompt}");
        }
    }
}
