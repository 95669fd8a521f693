//! Questions of the agent: their text, the meaning of each answer, and the command that answers them.
//!
//! It owns what the user must see before answering: the whole command, the change as a diff, the folder. Pure, except that
//! the file that would be overwritten is read for its diff (`tool_call`). It must not know how an answer gets to the daemon.

use std::path::Path;

use bridge_protocol::raw::RawJson;
use bridge_protocol::turn::{Interrupt, InterruptKind};
use bridge_protocol::{ConversationId, InterruptId, method};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::form::Form;
use super::tool_call::{ToolCall, diff, text_before};
use crate::cli::advice::Advice;
use crate::cli::humanize;
use crate::cli::output::{ATTENTION, DIM, Look, STRONG, escape_controls, one_line, rows_of_text};
use crate::paths::shell_word;

#[cfg(test)]
mod tests;

/// The name that other clients see for an answer given here.
pub(super) const ANSWERER: &str = "sessionctl";

/// The rows of a terminal that does not know how many it has.
const USUAL_ROWS: usize = 24;

/// How one of ACP's kinds of options is shown: its key, its words and its texts.
#[derive(Debug)]
struct OptionKind {
    /// ACP's kind of the option.
    kind: &'static str,
    /// The key of the first option of the kind.
    key: &'static str,
    /// The words that choose it, the first of them in commands.
    answer_words: [&'static str; 2],
    /// The meaning that is shown beside the key.
    meaning: &'static str,
    /// The note that confirms the answer.
    confirmation: &'static str,
    /// What the key does. If this ends with a colon, the agent's name of the option follows.
    help: &'static str,
}

/// The kinds, in the order in which their options are shown.
const OPTION_KINDS: [OptionKind; 4] = [
    OptionKind {
        kind: "allow_once",
        key: "y",
        answer_words: ["allow", "yes"],
        meaning: "once",
        confirmation: "allowed once",
        help: "allows this once; the agent asks again next time",
    },
    OptionKind {
        kind: "allow_always",
        key: "a",
        answer_words: ["always", "always"],
        meaning: "always",
        confirmation: "allowed from now on",
        help: "allows this from now on, as the agent says:",
    },
    OptionKind {
        kind: "reject_once",
        key: "n",
        answer_words: ["deny", "no"],
        meaning: "no",
        confirmation: "refused",
        help: "refuses this once; the agent continues without it",
    },
    OptionKind {
        kind: "reject_always",
        key: "N",
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

/// A question as it is asked on a terminal.
#[derive(Debug)]
pub(super) struct Question {
    /// The question on one line.
    subject: String,
    /// What the agent would do, line by line.
    details: Vec<String>,
    /// How many lines of the details are shown with the question; `d` shows all.
    shown_lines: usize,
    /// Whether the question is on the screen as a whole when it is answered.
    is_on_screen: bool,
    options: Vec<KeyedOption>,
    /// The form, if it is one.
    form: Option<Form>,
    /// Whether the user has seen the details that are not shown with the question.
    pub(super) was_fully_shown: bool,
}

/// An option with the key that chooses it.
#[derive(Debug)]
struct KeyedOption {
    /// A letter, or the option's number, which may have several digits.
    key: String,
    option: AnswerOption,
    /// How it is shown, if it is the first of its kind.
    kind: Option<&'static OptionKind>,
}

/// What a typed answer does.
pub(super) enum Reply {
    /// The outcome, and the note that confirms it.
    Answer(RawJson, String),
    /// The form with one more field answered, and the note that confirms it.
    Next(Box<Form>, String),
    /// The text is not an answer; the reason.
    Unknown(String),
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
        let form = form(interrupt);
        if let Some(form) = &form {
            details.extend(form.lines(look));
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
        let question = Self {
            subject,
            shown_lines: details.len(),
            details,
            is_on_screen: true,
            options: options_with_keys(interrupt),
            form,
            was_fully_shown: false,
        };
        question.fitted(uncut_lines, look)
    }

    /// Limits the lines that are shown to those that fit on the screen. The first `uncut` lines, which are the command, the
    /// folder and the list of changed files, are shown even if the screen is too small for them.
    fn fitted(mut self, uncut: usize, look: Look) -> Self {
        let columns = look.columns.unwrap_or(0);
        let rows = |text: &str| rows_of_text(text, columns);
        let rows_of_lines = |lines: &[String]| lines.iter().map(|line| rows(line)).sum::<usize>();
        let form = self.form.as_ref().filter(|form| !form.is_only_confirmed());
        let details = form.map_or_else(|| self.details.clone(), |form| form.longest(look, rows_of_lines));
        let subject = match columns {
            0 => 1,
            _ => rows(&look.wrap(&format!("? {}", self.subject), 0)),
        };
        // Below it: the options, the line about the keys and the cursor's row.
        let how = self.how_to_answer("  sessionctl answer 00000000 deny --question 00000000");
        let below = rows_of_lines(&self.option_lines(look)) + rows(&how) + 1;
        let space = look.rows.unwrap_or(USUAL_ROWS).saturating_sub(subject + below);
        self.is_on_screen = rows_of_lines(&details) <= space;
        if !self.is_on_screen && form.is_none() {
            // One row says how many lines are not shown.
            let mut left = space.saturating_sub(1);
            let fitting = self.details.iter().take_while(|line| {
                let needs = rows(line);
                let fits = needs <= left;
                left = left.saturating_sub(needs);
                fits
            });
            self.shown_lines = fitting.count().max(uncut);
        }
        self
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
        let hidden = self.details.len() - self.shown_lines;
        lines.truncate(lines.len() - hidden);
        let note = match hidden {
            0 if self.is_on_screen || self.form.is_some() => return lines,
            0 => "more than fits on the screen".to_owned(),
            _ => humanize::count(hidden as u64, "more line", "more lines"),
        };
        lines.push(look.paint(ATTENTION, &format!("  ({note}{how})")));
        lines
    }

    /// The lines that ask the question. The fields of a form are asked one after the other.
    pub(super) fn lines(&self, look: Look) -> Vec<String> {
        let form = self.form.as_ref().filter(|form| !form.is_only_confirmed());
        let Some(form) = form else {
            return [self.excerpt(look, ": d shows all"), self.option_lines(look)].concat();
        };
        let subject = form.is_untouched().then(|| self.subject_line(look));
        subject.into_iter().chain(form.current_lines(look)).collect()
    }

    fn option_lines(&self, look: Look) -> Vec<String> {
        let width = self.options.iter().map(|one| one.key.len()).max().unwrap_or(0);
        let lines = self.options.iter().map(|one| {
            let meaning = one.kind.map_or("", |kind| kind.meaning);
            let key = look.paint(STRONG, &format!("{:<width$}", one.key));
            format!("  {key}  {meaning:<6}  {}", one.option.words())
        });
        lines.collect()
    }

    /// Whether a part of the question was not read yet, because the screen does not show it.
    pub(super) fn is_unread(&self) -> bool {
        !self.is_on_screen && !self.was_fully_shown
    }

    /// Whether an outcome allows what the agent asks for.
    pub(super) fn allows(&self, outcome: &RawJson) -> bool {
        let outcome: Value = outcome.read().unwrap_or_default();
        if self.form.is_some() {
            return form_action(&outcome) == Some("accept");
        }
        // As in the daemon: an option allows unless it rejects.
        let mut options = self.options.iter().map(|one| &one.option);
        let is_rejection = options
            .any(|one| one.kind.starts_with("reject") && outcome["optionId"] == one.option_id.as_str());
        outcome["outcome"] == "selected" && !is_rejection
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

    fn subject_line(&self, look: Look) -> String {
        look.paint(ATTENTION, &format!("? {}", self.subject))
    }

    fn subject_and_details(&self, look: Look) -> Vec<String> {
        [vec![self.subject_line(look)], self.details.clone()].concat()
    }

    /// The whole question, as the pager shows it.
    pub(super) fn whole(&self, look: Look) -> String {
        let lines = self.subject_and_details(look);
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// The valid keys; empty if the answer is a line.
    pub(super) fn keys(&self) -> String {
        match &self.form {
            Some(form) => form.keys(),
            // A digit may begin a number.
            None if self.options.iter().any(|one| one.key.len() > 1) => String::new(),
            None => {
                let choices = self.options.iter().map(|one| one.key.as_str());
                let keys = if self.options.is_empty() { "n" } else { "" };
                choices.chain([keys, "d"]).collect()
            }
        }
    }

    /// How to answer, as one line. `decline` is the command that declines a form.
    pub(super) fn how_to_answer(&self, decline: &str) -> String {
        let keys: Vec<&str> = self.options.iter().map(|one| one.key.as_str()).collect();
        match &self.form {
            Some(form) => form.how(decline),
            None if keys.is_empty() => "n declines, d shows all, ? helps".to_owned(),
            None if self.keys().is_empty() => {
                format!("type one of {} and Enter; d shows all, ? helps", keys.join(" "))
            }
            None => format!("{} answer, d shows all, ? helps", keys.join(" ")),
        }
    }

    /// The help for the keys, a line for each. `decline` is the command that declines a form.
    pub(super) fn help(&self, decline: &str) -> Vec<String> {
        let of = |one: &KeyedOption| match one.kind {
            Some(kind) if kind.help.ends_with(':') => {
                format!("{}  {} {}", one.key, kind.help, one.option.words())
            }
            Some(kind) => format!("{}  {}", one.key, kind.help),
            None => format!("{}  {}", one.key, one.option.words()),
        };
        let mut lines: Vec<String> = self.options.iter().map(of).collect();
        match &self.form {
            Some(form) => lines.push(form.how(decline)),
            None => {
                lines.push("d  shows the whole command or change in the pager".to_owned());
                lines.push("yes, no, always or an option's name and Enter answer too".to_owned());
            }
        }
        lines.push("Ctrl-C cancels the turn. Ctrl-D leaves; the question stays open.".to_owned());
        lines.push(match self.keys().is_empty() {
            true => "Backspace deletes a letter.".to_owned(),
            false => "Backspace deletes a letter. Other keys do nothing.".to_owned(),
        });
        lines
    }

    /// Whether the question is a form.
    pub(super) fn is_form(&self) -> bool {
        self.form.is_some()
    }

    /// Asks for the next field of the form.
    pub(super) fn ask_next(&mut self, form: Form) {
        self.form = Some(form);
    }

    /// What the typed text does.
    pub(super) fn answer(&self, interrupt: &Interrupt, typed: &str) -> Reply {
        if let Some(form) = &self.form {
            return match form.take(typed) {
                Err(why) => Reply::Unknown(why),
                Ok(None) => Reply::Answer(refusal_outcome(interrupt), "declined".to_owned()),
                Ok(Some((next, said))) => match next.outcome() {
                    Some(outcome) => Reply::Answer(outcome, said),
                    None => Reply::Next(Box::new(next), said),
                },
            };
        }
        if let Some(one) = self.options.iter().find(|one| one.key == typed.trim()) {
            let said = one
                .kind
                .map_or(one.option.words(), |kind| kind.confirmation.to_owned());
            return Reply::Answer(outcome_of_option(&one.option), said);
        }
        let word = typed.trim();
        let said =
            option_kind_by_word(word).map_or_else(|| one_line(word), |way| way.confirmation.to_owned());
        // A JSON outcome cannot be checked here, only by the daemon.
        match parse_answer(interrupt, &[word.to_owned()]) {
            Ok(outcome) if !word.starts_with('{') => Reply::Answer(outcome, said),
            _ => Reply::Unknown(format!(
                "{} is not one of the answers; these are:",
                one_line(word)
            )),
        }
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

/// Each option with its key: the first option of a kind has the kind's key, the others their number in the agent's order.
fn options_with_keys(interrupt: &Interrupt) -> Vec<KeyedOption> {
    let mut keyed: Vec<KeyedOption> = Vec::new();
    for (at, option) in answer_options(interrupt).into_iter().enumerate() {
        let kind = OPTION_KINDS.iter().find(|kind| kind.kind == option.kind);
        let kind = kind.filter(|kind| keyed.iter().all(|taken| taken.key != kind.key));
        let key = kind.map_or_else(|| (at + 1).to_string(), |kind| kind.key.to_owned());
        keyed.push(KeyedOption { key, option, kind });
    }
    let place = |one: &KeyedOption| OPTION_KINDS.iter().position(|kind| kind.key == one.key);
    keyed.sort_by_key(|one| place(one).unwrap_or(OPTION_KINDS.len()));
    keyed
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
pub(in crate::cli) fn subject(interrupt: &Interrupt) -> String {
    let message = || {
        let request: Value = interrupt.request.read().ok()?;
        request["message"].as_str().map(str::to_owned)
    };
    let text = tool_call(interrupt).and_then(|call| call.title).or_else(message);
    text.map_or_else(|| "the agent asks a question".to_owned(), |text| one_line(&text))
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

/// The form that a question is, if it is one.
fn form(interrupt: &Interrupt) -> Option<Form> {
    let is_form = interrupt.kind == InterruptKind::Elicitation;
    is_form.then(|| Form::read(&interrupt.request))
}

/// The command that declines a form.
pub(super) fn decline_command(advice: &Advice, interrupt: &Interrupt) -> String {
    let id = one_line(interrupt.id.as_str());
    advice.answer(&format!("deny --question {id}"))
}

/// The command that answers a question.
pub(in crate::cli) fn command(advice: &Advice, interrupt: &Interrupt) -> String {
    let id = one_line(interrupt.id.as_str());
    if let Some(form) = form(interrupt) {
        let answer = advice.answer(&format!("{} --question {id}", form.example()));
        return format!(
            "answer it: {answer}; {} declines it",
            decline_command(advice, interrupt)
        );
    }
    let words: Vec<String> = options_with_keys(interrupt)
        .iter()
        .map(|one| match one.kind {
            Some(kind) => kind.answer_words[0].to_owned(),
            // The agent chooses this text; quote it so that pasting it runs nothing else.
            None => shell_word(&one_line(&one.option.option_id)),
        })
        .collect();
    let (choice, word) = match words.as_slice() {
        [] => (String::new(), "deny"),
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

/// Parses the words of an answer into ACP's outcome: `allow`, `always`, `deny`, an option's id, name or key, `cancel`, the
/// fields of a form, or a JSON outcome.
///
/// # Errors
/// Why the text does not answer the question.
pub(super) fn parse_answer(interrupt: &Interrupt, words: &[String]) -> Result<RawJson, String> {
    let answer = words.join(" ");
    let unknown = || one_line(&answer);
    let form = form(interrupt);
    if answer.trim_start().starts_with('{') {
        let outcome = RawJson::from_text(answer.clone()).map_err(|_| unknown())?;
        let parts: Value = outcome.read().unwrap_or_default();
        if let (Some(form), Some("accept")) = (&form, form_action(&parts)) {
            match &parts["content"] {
                Value::Null => form.check(&Map::new())?,
                Value::Object(content) => form.check(content)?,
                _ => return Err("content must be an object".to_owned()),
            }
        }
        return Ok(outcome);
    }
    if let Some(form) = form {
        let outcome = form.answer(words)?;
        return Ok(outcome.unwrap_or_else(|| refusal_outcome(interrupt)));
    }
    let way = option_kind_by_word(&answer);
    match way {
        Some(way) if way.key == "n" => return Ok(refusal_outcome(interrupt)),
        _ if answer == "cancel" => return Ok(RawJson::from(json!({"outcome": "cancelled"}))),
        _ => {}
    }
    let choices = answer_options(interrupt);
    let of_kind = way.and_then(|way| choices.iter().find(|choice| choice.kind == way.kind));
    let named =
        |choice: &&AnswerOption| choice.option_id == answer || choice.name.eq_ignore_ascii_case(&answer);
    if let Some(choice) = of_kind.or_else(|| choices.iter().find(named)) {
        return Ok(outcome_of_option(choice));
    }
    // Nothing has the name of a key, so the key is meant.
    let keyed = options_with_keys(interrupt);
    match keyed.iter().find(|one| one.key == answer) {
        Some(one) => Ok(outcome_of_option(&one.option)),
        None if answer == "n" => Ok(refusal_outcome(interrupt)),
        None => Err(unknown()),
    }
}

/// The action of a form's outcome, which the daemon reads from either member.
fn form_action(outcome: &Value) -> Option<&str> {
    outcome["action"].as_str().or_else(|| outcome["outcome"].as_str())
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
