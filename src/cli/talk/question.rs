//! Questions of the agent: their text, the meaning of each answer, and the command that answers them.
//!
//! It owns what the user must see before answering: the whole command, the change as a diff, the folder. Pure, except that
//! the file that would be overwritten is read for its diff. It must not know how an answer gets to the daemon.

use std::fs;
use std::io;
use std::path::Path;

use bridge_protocol::raw::RawJson;
use bridge_protocol::turn::{Interrupt, InterruptKind};
use bridge_protocol::{ConversationId, InterruptId, method};
use serde::Deserialize;
use serde_json::{Value, json};
use similar::{ChangeTag, TextDiff};

use crate::cli::advice::Advice;
use crate::cli::humanize;
use crate::cli::output::{ATTENTION, BAD, DIM, GOOD, Look, STRONG, escape_controls, one_line};
use crate::paths::shell_word;

#[cfg(test)]
mod tests;

/// The name that other clients see for an answer given here.
pub(super) const ANSWERER: &str = "sessionctl";

/// Lines of a change that are shown with the question; `d` shows all.
const SHOWN_LINES: usize = 24;

/// The largest file that is read for a diff.
const FILE_LIMIT_BYTES: u64 = 1024 * 1024;

/// Lines of context around a change.
const CONTEXT_LINES: usize = 3;

/// The keys of options, in the order in which they are shown.
const OPTION_KEYS: &str = "yanN123456789";

/// How one of ACP's kinds of options is shown: its key, its words and its texts.
#[derive(Debug)]
struct OptionKind {
    /// ACP's kind of the option.
    kind: &'static str,
    /// The key of the first option of the kind.
    key: char,
    /// The words that choose it, the first of them in commands.
    answer_words: [&'static str; 2],
    /// The meaning that is shown beside the key.
    meaning: &'static str,
    /// The note that confirms the answer.
    confirmation: &'static str,
    /// What the key does. If this ends with a colon, the agent's name of the option follows.
    help: &'static str,
}

const OPTION_KINDS: [OptionKind; 4] = [
    OptionKind {
        kind: "allow_once",
        key: 'y',
        answer_words: ["allow", "yes"],
        meaning: "once",
        confirmation: "allowed once",
        help: "allows this once; the agent asks again next time",
    },
    OptionKind {
        kind: "allow_always",
        key: 'a',
        answer_words: ["always", "always"],
        meaning: "always",
        confirmation: "allowed from now on",
        help: "allows this from now on, as the agent says:",
    },
    OptionKind {
        kind: "reject_once",
        key: 'n',
        answer_words: ["deny", "no"],
        meaning: "no",
        confirmation: "refused",
        help: "refuses this once; the agent continues without it",
    },
    OptionKind {
        kind: "reject_always",
        key: 'N',
        answer_words: ["never", "never"],
        meaning: "never",
        confirmation: "refused from now on",
        help: "refuses this from now on:",
    },
];

/// An option that the agent offers as an answer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AnswerOption {
    /// ACP's id of the option.
    pub(super) option_id: String,
    /// The agent's words for it.
    #[serde(default)]
    pub(super) name: String,
    /// ACP's kind of the option.
    #[serde(default)]
    kind: String,
}

/// The part of a tool call that the user has to see. A request may omit values that an earlier update contained.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ToolCall {
    tool_call_id: Option<String>,
    /// The agent's words for it.
    pub(super) title: Option<String>,
    kind: Option<String>,
    raw_input: Option<Value>,
    content: Option<Vec<Value>>,
    /// Whether its end was shown.
    #[serde(skip)]
    pub(super) has_ended: bool,
}

impl ToolCall {
    /// Merges the values of a later update into the call.
    pub(super) fn merge(&mut self, later: Self) {
        self.tool_call_id = later.tool_call_id.or(self.tool_call_id.take());
        self.title = later.title.or(self.title.take());
        self.kind = later.kind.or(self.kind.take());
        self.raw_input = later.raw_input.or(self.raw_input.take());
        let content = later.content.filter(|content| !content.is_empty());
        self.content = content.or(self.content.take());
    }

    /// The result of the call on one line: lines added and removed, or the first line of its output.
    pub(super) fn result(&self) -> Option<String> {
        let (mut added, mut removed, mut changes) = (0, 0, false);
        for edit in self.edits(|_| Ok(String::new())) {
            changes = true;
            let (more, less) = edit.counts();
            added += more;
            removed += less;
        }
        if changes {
            return Some(format!("+{added} -{removed}"));
        }
        let text = self.texts().collect::<Vec<_>>().join("\n");
        // Claude Code's adapter puts the output of a tool between Markdown fences.
        let is_empty = |line: &str| line.trim().is_empty() || line.starts_with("```");
        let mut lines = text.lines().filter(|line| !is_empty(line));
        let first = one_line(lines.next()?);
        Some(match lines.count() {
            0 => first,
            more => format!("{first} (+{})", humanize::count(more as u64, "line", "lines")),
        })
    }

    /// The command that the call runs, with its line breaks.
    fn command(&self) -> Option<String> {
        match self.input("command")? {
            Value::String(command) => Some(command.clone()),
            Value::Array(words) => {
                // Quote the words as in a shell, because the user approves the word boundaries too.
                let words = words.iter().map(|word| word.as_str().map(shell_word));
                Some(words.collect::<Option<Vec<String>>>()?.join(" "))
            }
            _ => None,
        }
    }

    fn input(&self, name: &str) -> Option<&Value> {
        self.raw_input.as_ref()?.get(name)
    }

    /// The boolean arguments that are true, on one line. The command and the change do not show these, for example running
    /// outside the sandbox or replacing every occurrence of a text.
    fn enabled_flags(&self, look: Look) -> Option<String> {
        let input = self.raw_input.as_ref()?.as_object()?;
        let is_on = input.iter().filter(|(_, value)| **value == Value::Bool(true));
        let names: Vec<String> = is_on.map(|(name, _)| one_line(name)).collect();
        (!names.is_empty()).then(|| look.paint(ATTENTION, &format!("  with {}", names.join(", "))))
    }

    fn input_text(&self, name: &str) -> Option<&str> {
        self.input(name)?.as_str()
    }

    /// The contents of the call that have this type.
    fn contents(&self, kind: &'static str) -> impl Iterator<Item = &Value> {
        let contents = self.content.iter().flatten();
        contents.filter(move |content| content["type"] == kind)
    }

    /// The files that the call changes. `before` returns the old text of a file if the diff omits it: Claude Code's adapter
    /// omits it for each file that is written whole, whether it exists or not.
    fn edits(&self, before: impl Fn(&str) -> Result<String, String>) -> Vec<FileEdit> {
        let shown = self.contents("diff").filter_map(|diff| {
            let text = |name: &str| diff[name].as_str().map(str::to_owned);
            let path = text("path")?;
            Some(FileEdit {
                old: text("oldText").map_or_else(|| before(&path), Ok),
                new: text("newText")?,
                path,
            })
        });
        shown.collect()
    }

    /// The changed file, taken from the arguments of common tools, for agents that send no diff.
    fn edit_of_input(&self, before: impl Fn(&str) -> Result<String, String>) -> Option<FileEdit> {
        let path = self.input_text("file_path").or_else(|| self.input_text("path"))?;
        let pair = (self.input_text("old_string"), self.input_text("new_string"));
        let (old, new) = match pair {
            (Some(old), Some(new)) => (Ok(old.to_owned()), new),
            _ => (before(path), self.input_text("content")?),
        };
        Some(FileEdit {
            path: path.to_owned(),
            old,
            new: new.to_owned(),
        })
    }

    fn texts(&self) -> impl Iterator<Item = &str> {
        let contents = self.contents("content");
        contents.filter_map(|content| content["content"]["text"].as_str())
    }
}

/// A file that a tool call would change.
struct FileEdit {
    path: String,
    /// The old text, or why it is not known.
    old: Result<String, String>,
    new: String,
}

impl FileEdit {
    /// The old text; empty if it is not known.
    fn old(&self) -> &str {
        self.old.as_deref().unwrap_or_default()
    }

    /// How many lines the change adds and removes.
    fn counts(&self) -> (u64, u64) {
        let (mut added, mut removed) = (0, 0);
        for change in TextDiff::from_lines(self.old(), &self.new).iter_all_changes() {
            match change.tag() {
                ChangeTag::Insert => added += 1,
                ChangeTag::Delete => removed += 1,
                ChangeTag::Equal => {}
            }
        }
        (added, removed)
    }

    /// The absolute path: an agent may send a path relative to its folder.
    fn whole_path(&self, folder: &str) -> String {
        let path = Path::new(folder).join(one_line(&self.path));
        path.display().to_string()
    }

    /// The path of the file and the number of changed lines, on one line.
    fn summary(&self, folder: &str, look: Look) -> String {
        let path = look.paint(STRONG, &self.whole_path(folder));
        let (added, removed) = self.counts();
        match &self.old {
            Ok(_) => format!("  {path}  +{added} -{removed}"),
            Err(_) => format!("  {path}  +{added}, replaces a file that is not shown"),
        }
    }
}

/// Reads the text of a file that would be overwritten. A file that does not exist is empty.
///
/// # Errors
/// Why the file cannot be shown.
fn text_before(file: &Path) -> Result<String, String> {
    let found = match fs::metadata(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        found => found.map_err(|error| error.to_string())?,
    };
    if !found.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    if found.len() > FILE_LIMIT_BYTES {
        return Err(format!("it is larger than {}", humanize::size(FILE_LIMIT_BYTES)));
    }
    let bytes = fs::read(file).map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())
}

/// A question as it is asked on a terminal.
#[derive(Debug)]
pub(super) struct Question {
    /// The question on one line.
    subject: String,
    /// What the agent would do, line by line.
    details: Vec<String>,
    /// How many lines of the details are always shown: the command, the folder and the list of changed files.
    uncut_lines: usize,
    options: Vec<KeyedOption>,
    /// Whether the user has seen the details that are not shown with the question.
    pub(super) was_fully_shown: bool,
}

/// An option with the key that chooses it.
#[derive(Debug)]
struct KeyedOption {
    key: char,
    option: AnswerOption,
    /// How it is shown, if it is the first of its kind.
    kind: Option<&'static OptionKind>,
}

impl Question {
    /// Builds the question of an interrupt, combined with what is already known about its tool call.
    pub(super) fn from_interrupt(
        interrupt: &Interrupt,
        known: Option<&ToolCall>,
        folder: &str,
        look: Look,
    ) -> Self {
        // Control characters must not deceive the user who decides, so they are removed even if this is not a terminal.
        let look = Look {
            columns: look.columns.or(Some(0)),
            ..look
        };
        let mut call = known.cloned().unwrap_or_default();
        call.merge(tool_call(interrupt).unwrap_or_default());
        let command = call.command();
        let place = one_line(call.input_text("cwd").unwrap_or(folder));
        let subject = match &command {
            Some(_) => format!("Run in {place}"),
            None => subject(interrupt),
        };
        let mut details = Vec::new();
        if let Some(command) = &command {
            details.extend(
                command
                    .lines()
                    .map(|line| format!("    {}", look.paint(STRONG, &escape_controls(line)))),
            );
        }
        let before = |path: &str| text_before(&Path::new(folder).join(path));
        let mut edits = call.edits(before);
        if edits.is_empty() {
            edits.extend(call.edit_of_input(before));
        }
        if command.is_none() && interrupt.tool_call.is_some() {
            details.push(format!("  in {}", look.paint(DIM, &place)));
        }
        details.extend(edits.iter().map(|edit| edit.summary(&place, look)));
        if command.is_some() || !edits.is_empty() {
            details.extend(call.enabled_flags(look));
        }
        let uncut_lines = details.len();
        for edit in &edits {
            // The line above the changes names a single file already.
            if edits.len() > 1 {
                details.push(format!("  {}", look.paint(STRONG, &edit.whole_path(&place))));
            }
            if let Err(why) = &edit.old {
                let why = format!("  the file exists and is not shown, because {}", one_line(why));
                details.push(look.paint(ATTENTION, &why));
            }
            details.extend(diff(edit.old(), &edit.new, look));
        }
        if command.is_none() && edits.is_empty() {
            details.extend(input_lines(call.raw_input.as_ref(), &subject));
        }
        // The description comes last: the agent's words must not push what it would do out of view.
        let described = call.input_text("description");
        let mut reasons: Vec<&str> = described.into_iter().chain(call.texts()).collect();
        reasons.dedup();
        for line in reasons.iter().flat_map(|reason| reason.lines()) {
            details.push(format!("  {}", look.paint(DIM, &escape_controls(line))));
        }
        Self {
            subject,
            details,
            uncut_lines,
            options: options_with_keys(interrupt),
            was_fully_shown: false,
        }
    }

    /// Builds the question of an interrupt from what the agent has reported in the turn, including its tool calls.
    pub(super) fn from_updates(interrupt: &Interrupt, folder: &str, updates: &[RawJson], look: Look) -> Self {
        let id = tool_call_id(interrupt);
        let calls = updates.iter().filter_map(|update| update.read::<ToolCall>().ok());
        let mut known = ToolCall::default();
        calls
            .filter(|call| id.is_some() && call.tool_call_id == id)
            .for_each(|call| known.merge(call));
        Self::from_interrupt(interrupt, Some(&known), folder, look)
    }

    /// The lines of the question, shortened if there are too many. `how` follows the count of the lines that are not shown.
    pub(super) fn excerpt(&self, look: Look, how: &str) -> Vec<String> {
        let mut lines = self.subject_and_details(look);
        let hidden = self.hidden_lines();
        if hidden > 0 {
            lines.truncate(lines.len() - hidden);
            let more = humanize::count(hidden as u64, "more line", "more lines");
            lines.push(look.paint(ATTENTION, &format!("  ({more}{how})")));
        }
        lines
    }

    /// The lines that ask the question.
    pub(super) fn lines(&self, look: Look) -> Vec<String> {
        let mut lines = self.excerpt(look, ": d shows all");
        for one in &self.options {
            let meaning = one.kind.map_or("", |kind| kind.meaning);
            let key = look.paint(STRONG, &one.key.to_string());
            lines.push(format!("  {key}  {meaning:<6}  {}", one.option.words()));
        }
        lines
    }

    /// How many lines of the details are not shown with the question.
    pub(super) fn hidden_lines(&self) -> usize {
        let shown = SHOWN_LINES.max(self.uncut_lines);
        self.details.len().saturating_sub(shown)
    }

    /// Whether an outcome allows what the agent asks for.
    pub(super) fn allows(&self, outcome: &RawJson) -> bool {
        let outcome: Value = outcome.read().unwrap_or_default();
        let is_chosen = |choice: &AnswerOption| outcome["optionId"] == choice.option_id.as_str();
        let mut allowing = self
            .options
            .iter()
            .filter(|one| one.option.kind.starts_with("allow"));
        allowing.any(|one| is_chosen(&one.option))
    }

    /// The lines of the question, for a user who cannot answer it here.
    pub(super) fn report_lines(&self, look: Look) -> Vec<String> {
        [self.subject_and_details(look), self.lasting_answers()].concat()
    }

    /// The meaning of each answer that also applies to later questions, for a user who answers with words.
    pub(super) fn lasting_answers(&self) -> Vec<String> {
        let lasting = self.options.iter().filter_map(|one| {
            let kind = one.kind.filter(|kind| kind.help.ends_with(':'))?;
            Some(format!(
                "  {} means: {}",
                kind.answer_words[0],
                one.option.words()
            ))
        });
        lasting.collect()
    }

    fn subject_and_details(&self, look: Look) -> Vec<String> {
        let subject = look.paint(ATTENTION, &format!("? {}", self.subject));
        [vec![subject], self.details.clone()].concat()
    }

    /// Everything that the agent would do.
    pub(super) fn details(&self) -> String {
        self.details.iter().map(|line| format!("{line}\n")).collect()
    }

    /// The valid keys.
    pub(super) fn keys(&self) -> String {
        let choices = self.options.iter().map(|one| one.key);
        let keys = if self.has_no_options() { "n" } else { "" };
        choices.chain(keys.chars()).chain(['d']).collect()
    }

    /// The keys that answer the question, as one line.
    pub(super) fn keys_line(&self) -> String {
        let keys: Vec<String> = self.options.iter().map(|one| one.key.to_string()).collect();
        format!("{} answer, d shows all, ? helps", keys.join(" "))
    }

    /// The help for the keys, a line for each.
    pub(super) fn help(&self) -> Vec<String> {
        let of = |one: &KeyedOption| match one.kind {
            Some(kind) if kind.help.ends_with(':') => {
                format!("{}  {} {}", one.key, kind.help, one.option.words())
            }
            Some(kind) => format!("{}  {}", one.key, kind.help),
            None => format!("{}  {}", one.key, one.option.words()),
        };
        let mut lines: Vec<String> = self.options.iter().map(of).collect();
        lines.push("d  shows the whole command or change in the pager".to_owned());
        lines.push("yes, no, always or an option's name and Enter answer too".to_owned());
        lines.push("Ctrl-C cancels the turn. Ctrl-D leaves; the question stays open.".to_owned());
        lines.push("Backspace takes a letter back. Other keys do nothing.".to_owned());
        lines
    }

    /// Whether the question has no options, so that only a command can answer it.
    pub(super) fn has_no_options(&self) -> bool {
        self.options.is_empty()
    }

    /// The outcome of the typed answer, and the note that confirms it; `None` if the text is not an answer.
    pub(super) fn answer(&self, interrupt: &Interrupt, typed: &str) -> Option<(RawJson, String)> {
        if let Some(one) = self.options.iter().find(|one| typed.chars().eq([one.key])) {
            let said = one
                .kind
                .map_or(one.option.words(), |kind| kind.confirmation.to_owned());
            return Some((outcome_of_option(&one.option), said));
        }
        let word = match typed.trim() {
            "n" if self.has_no_options() => "no",
            // A JSON outcome cannot be checked here, only by the daemon.
            whole if whole.starts_with('{') => return None,
            word => word,
        };
        let said =
            option_kind_by_word(word).map_or_else(|| one_line(word), |way| way.confirmation.to_owned());
        Some((parse_answer(interrupt, word)?, said))
    }
}

impl AnswerOption {
    /// The agent's name of the option.
    fn words(&self) -> String {
        one_line(if self.name.is_empty() {
            &self.option_id
        } else {
            &self.name
        })
    }
}

/// Each option with its key: the first option of a kind has the kind's key, the others are numbered.
fn options_with_keys(interrupt: &Interrupt) -> Vec<KeyedOption> {
    let mut numbers = '1'..='9';
    let mut keyed: Vec<KeyedOption> = Vec::new();
    for option in answer_options(interrupt) {
        let kind = OPTION_KINDS.iter().find(|kind| kind.kind == option.kind);
        let kind = kind.filter(|kind| keyed.iter().all(|taken| taken.key != kind.key));
        if let Some(key) = kind.map(|kind| kind.key).or_else(|| numbers.next()) {
            keyed.push(KeyedOption { key, option, kind });
        }
    }
    keyed.sort_by_key(|one| OPTION_KEYS.find(one.key));
    keyed
}

/// The changed lines with [`CONTEXT_LINES`] lines around them.
fn diff(old: &str, new: &str, look: Look) -> Vec<String> {
    let diff = TextDiff::from_lines(old, new);
    let mut lines = Vec::new();
    for (at, group) in diff.grouped_ops(CONTEXT_LINES).iter().enumerate() {
        if at > 0 {
            lines.push(look.paint(DIM, &format!("  {}", look.sign("⋮", "..."))));
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let (sign, style) = match change.tag() {
                ChangeTag::Delete => ("-", BAD),
                ChangeTag::Insert => ("+", GOOD),
                ChangeTag::Equal => (" ", DIM),
            };
            let text = escape_controls(change.value().trim_end_matches(['\n', '\r']));
            lines.push(format!("  {}", look.paint(style, &format!("{sign} {text}"))));
        }
    }
    lines
}

/// The arguments of an unknown tool, unless the subject contains them already.
fn input_lines(input: Option<&Value>, subject: &str) -> Vec<String> {
    let Some(input) = input.filter(|input| !input.is_null()) else {
        return Vec::new();
    };
    let is_said = |value: &Value| value.as_str().is_some_and(|text| one_line(text) == subject);
    if is_said(input) || input.as_object().is_some_and(|input| input.values().all(is_said)) {
        return Vec::new();
    }
    let text = serde_json::to_string_pretty(input).unwrap_or_default();
    text.lines()
        .map(|line| format!("    {}", escape_controls(line)))
        .collect()
}

fn tool_call(interrupt: &Interrupt) -> Option<ToolCall> {
    interrupt.tool_call.as_ref()?.read().ok()
}

/// The id of the tool call that a question is about.
pub(super) fn tool_call_id(interrupt: &Interrupt) -> Option<String> {
    tool_call(interrupt)?.tool_call_id
}

/// The question on one line.
pub(super) fn subject(interrupt: &Interrupt) -> String {
    let message = || {
        let request: Value = interrupt.request.read().ok()?;
        request["message"].as_str().map(str::to_owned)
    };
    let text = tool_call(interrupt).and_then(|call| call.title).or_else(message);
    text.map_or_else(|| "the agent asks".to_owned(), |text| one_line(&text))
}

/// The options, in the agent's order.
fn answer_options(interrupt: &Interrupt) -> Vec<AnswerOption> {
    let options = interrupt.options.as_ref();
    options
        .and_then(|options| options.read().ok())
        .unwrap_or_default()
}

/// The lines of a question, for a user who is not asked here.
pub(in crate::cli) fn lines(interrupt: &Interrupt, folder: &str, updates: &[RawJson]) -> Vec<String> {
    Question::from_updates(interrupt, folder, updates, Look::default()).report_lines(Look::default())
}

/// The command that answers a question.
pub(in crate::cli) fn command(advice: &Advice, interrupt: &Interrupt) -> String {
    let id = one_line(interrupt.id.as_str());
    let words: Vec<String> = options_with_keys(interrupt)
        .iter()
        .map(|one| match one.kind {
            Some(kind) => kind.answer_words[0].to_owned(),
            // The agent chooses this text; quote it so that pasting it runs nothing else.
            None => shell_word(&one_line(&one.option.option_id)),
        })
        .collect();
    let (choice, word) = match words.as_slice() {
        [] => (String::new(), "'{\"action\":\"decline\"}'"),
        [only] => (String::new(), only.as_str()),
        [first, ..] => (format!(" ({})", words.join(", ")), first.as_str()),
    };
    let answer = advice.answer(&format!("{word} --question {id}"));
    format!("answer it{choice}: {answer}")
}

/// The kind of answer that a word names.
fn option_kind_by_word(word: &str) -> Option<&'static OptionKind> {
    let is_it = |way: &&OptionKind| way.answer_words.iter().any(|own| own.eq_ignore_ascii_case(word));
    OPTION_KINDS.iter().find(is_it)
}

/// Parses a typed answer into ACP's outcome: `allow`, `always`, `deny`, an option's id or name, `cancel`, or a JSON outcome.
/// Returns `None` if the question has no such option.
pub(super) fn parse_answer(interrupt: &Interrupt, answer: &str) -> Option<RawJson> {
    if answer.trim_start().starts_with('{') {
        return RawJson::from_text(answer.to_owned()).ok();
    }
    let way = option_kind_by_word(answer);
    let is_cancelled = answer == "cancel";
    match way {
        Some(way) if way.key == 'n' => return Some(refusal_outcome(interrupt)),
        _ if interrupt.kind == InterruptKind::Elicitation => {
            return is_cancelled.then(|| refusal_outcome(interrupt));
        }
        _ if is_cancelled => return Some(RawJson::from(json!({"outcome": "cancelled"}))),
        _ => {}
    }
    let choices = answer_options(interrupt);
    let of_kind = way.and_then(|way| choices.iter().find(|choice| choice.kind == way.kind));
    let named =
        |choice: &&AnswerOption| choice.option_id == answer || choice.name.eq_ignore_ascii_case(answer);
    of_kind
        .or_else(|| choices.iter().find(named))
        .map(outcome_of_option)
}

/// ACP's outcome that selects the option with this id.
pub(super) fn selected_outcome(option_id: &str) -> RawJson {
    RawJson::from(json!({"outcome": "selected", "optionId": option_id}))
}

/// ACP's outcome of an option.
fn outcome_of_option(choice: &AnswerOption) -> RawJson {
    selected_outcome(&choice.option_id)
}

/// ACP's outcome that grants nothing: the option that rejects once, otherwise any option that rejects, otherwise a
/// cancellation.
pub(super) fn refusal_outcome(interrupt: &Interrupt) -> RawJson {
    if interrupt.kind == InterruptKind::Elicitation {
        return RawJson::from(json!({"action": "decline"}));
    }
    let choices = answer_options(interrupt);
    let once = choices.iter().find(|choice| choice.kind == "reject_once");
    let refusing = once.or_else(|| choices.iter().find(|choice| choice.kind.starts_with("reject")));
    refusing.map_or_else(
        || RawJson::from(json!({"outcome": "cancelled"})),
        outcome_of_option,
    )
}

/// The call that answers a question.
pub(super) fn respond_call(
    id: ConversationId,
    interrupt_id: InterruptId,
    outcome: RawJson,
) -> method::Respond {
    method::Respond {
        interrupt_id,
        outcome,
        by: Some(ANSWERER.to_owned()),
        ..method::Respond::of(id)
    }
}
