//! Forms: what an agent asks by ACP's `elicitation/create`, a page to open or fields with options and texts.
//!
//! It owns how the requested schema is read, how its fields are shown and which value a typed text means. Pure. It must not
//! know where the answer goes.

use std::collections::VecDeque;

use bridge_protocol::raw::RawJson;
use indexmap::IndexMap;
use jiff::Timestamp;
use jiff::civil::Date;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::cli::output::{DIM, Look, STRONG, escape_controls, one_line};
use crate::paths::{shell_quoted, shell_word};

/// ACP's parameters of a form.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    url: Option<String>,
    requested_schema: Option<Schema>,
}

/// The fields in the agent's order, which a [`Value`] would not keep.
#[derive(Default, Deserialize)]
struct Schema {
    properties: Option<IndexMap<String, Value>>,
    required: Option<Vec<String>>,
}

/// A form and the answers given so far.
#[derive(Clone, Debug)]
pub(super) struct Form {
    url: Option<String>,
    fields: Vec<Field>,
    /// The indexes of the fields that are not answered yet. The first one is being asked.
    pending: VecDeque<usize>,
    given: Map<String, Value>,
}

/// A field of a form.
#[derive(Clone, Debug)]
struct Field {
    name: String,
    title: String,
    description: String,
    is_required: bool,
    kind: FieldKind,
    /// The field's schema, which has the limits of its value.
    schema: Value,
    /// The text field in which the user may write an answer that is not an option: its index and title.
    own_words: Option<(usize, String)>,
}

/// The type of a field's value.
#[derive(Clone, Debug)]
enum FieldKind {
    /// One of these options.
    One(Vec<FormOption>),
    /// Some of these options.
    Some(Vec<FormOption>),
    Text,
    WholeNumber,
    Number,
    /// Any other value, which the user writes as JSON.
    Json,
}

#[derive(Clone, Debug)]
struct FormOption {
    value: Value,
    name: String,
    description: String,
}

impl FormOption {
    /// Reads the options of a schema. Returns none if it takes other values too.
    fn read_all(schema: &Value) -> Vec<Self> {
        let option = |value: &Value, name: &Value, description: &Value| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            Self {
                name: one_line(name.as_str().unwrap_or(&text)),
                description: one_line(description.as_str().unwrap_or_default()),
                value: value.clone(),
            }
        };
        if schema["type"] == "boolean" {
            return [("yes", true), ("no", false)]
                .map(|(name, value)| option(&value.into(), &name.into(), &Value::Null))
                .into();
        }
        if let Some(values) = schema["enum"].as_array() {
            let names = &schema["enumNames"];
            let values = values.iter().enumerate();
            return values
                .map(|(at, value)| option(value, &names[at], &Value::Null))
                .collect();
        }
        let titled = schema["oneOf"].as_array().or_else(|| schema["anyOf"].as_array());
        let titled = titled.into_iter().flatten().map(|one| {
            let value = one.get("const")?;
            Some(option(value, &one["title"], &one["description"]))
        });
        titled.collect::<Option<_>>().unwrap_or_default()
    }
}

impl Field {
    fn read(name: &str, schema: &Value, is_required: bool) -> Self {
        let text = |key: &str| one_line(schema[key].as_str().unwrap_or_default());
        let is_list = schema["type"] == "array";
        let options = FormOption::read_all(if is_list { &schema["items"] } else { schema });
        Self {
            name: name.to_owned(),
            title: text("title"),
            description: text("description"),
            is_required,
            kind: match schema["type"].as_str() {
                _ if !options.is_empty() && is_list => FieldKind::Some(options),
                _ if !options.is_empty() => FieldKind::One(options),
                Some("string") => FieldKind::Text,
                Some("integer") => FieldKind::WholeNumber,
                Some("number") => FieldKind::Number,
                _ => FieldKind::Json,
            },
            schema: schema.clone(),
            own_words: None,
        }
    }

    fn options(&self) -> &[FormOption] {
        match &self.kind {
            FieldKind::One(options) | FieldKind::Some(options) => options,
            _ => &[],
        }
    }

    /// The names of the options, the last of them for the user's own words.
    fn names(&self) -> impl Iterator<Item = &str> {
        let own = self.own_words.iter().map(|(_, title)| title.as_str());
        self.options()
            .iter()
            .map(|option| option.name.as_str())
            .chain(own)
    }

    /// Whether an option can be chosen by its position. Not if the name of an option is a number.
    fn has_numbers(&self) -> bool {
        !self.names().any(|name| name.parse::<usize>().is_ok())
    }

    /// The option that a word means.
    fn pick(&self, word: &str) -> Option<usize> {
        let (word, lower) = (word.trim(), word.trim().to_lowercase());
        let is_value = |option: &FormOption| option.value.as_str() == Some(word);
        let exact = self.names().position(|name| name == word);
        let place = || word.parse::<usize>().ok().filter(|_| self.has_numbers());
        exact
            .or_else(|| self.options().iter().position(is_value))
            .or_else(|| self.names().position(|name| name.to_lowercase() == lower))
            .or_else(|| place()?.checked_sub(1).filter(|at| *at < self.names().count()))
    }

    /// The options that a text means, and whether the user's own words are one of them.
    fn picks(&self, text: &str) -> Result<(Vec<Value>, bool), String> {
        let parts: Vec<&str> = match self.kind {
            FieldKind::Some(_) => text.split(',').collect(),
            _ => vec![text],
        };
        let (mut values, mut has_own, mut at) = (Vec::new(), false, 0);
        while at < parts.len() {
            // The name of an option may have a comma.
            let mut ends = (at + 1..=parts.len()).rev();
            let found = ends.find_map(|end| Some((end, self.pick(&parts[at..end].join(","))?)));
            let (end, pick) = found.ok_or_else(|| {
                let offered: Vec<&str> = self.names().collect();
                format!(
                    "{} is not offered; one of: {}",
                    one_line(parts[at]),
                    offered.join(", ")
                )
            })?;
            match self.options().get(pick) {
                Some(option) if values.contains(&option.value) => {}
                Some(option) => values.push(option.value.clone()),
                None => has_own = true,
            }
            at = end;
        }
        Ok((values, has_own))
    }

    /// Parses a text into the field's value. The flag says whether to ask for the user's own words next.
    fn parse(&self, text: &str) -> Result<(Option<Value>, bool), String> {
        let (value, has_own) = match self.kind {
            FieldKind::One(_) => {
                let (values, own) = self.picks(text)?;
                (values.into_iter().next(), own)
            }
            FieldKind::Some(_) => {
                let (values, own) = self.picks(text)?;
                ((!values.is_empty()).then_some(Value::Array(values)), own)
            }
            FieldKind::Text => (Some(text.into()), false),
            FieldKind::WholeNumber | FieldKind::Number | FieldKind::Json => {
                let value = serde_json::from_str(text).ok();
                let value = value.filter(|value| self.takes(value));
                let value = value.ok_or_else(|| format!("{} is not a {}", one_line(text), self.what()))?;
                (Some(value), false)
            }
        };
        value.iter().try_for_each(|value| self.check_limits(value))?;
        Ok((value, has_own))
    }

    /// Checks a value against the limits of the schema; the error says what they allow.
    fn check_limits(&self, value: &Value) -> Result<(), String> {
        let (size, of, limits) = match value {
            Value::Number(number) => (number.as_f64(), "", ["minimum", "maximum"]),
            Value::String(text) => (
                Some(text.chars().count() as f64),
                " of characters",
                ["minLength", "maxLength"],
            ),
            Value::Array(values) => (Some(values.len() as f64), " of options", ["minItems", "maxItems"]),
            _ => return Ok(()),
        };
        let [least, most] = limits.map(|limit| self.schema[limit].as_f64());
        if (least.is_some() && size < least) || (most.is_some() && size > most) {
            let range = match (least, most) {
                (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
                (Some(least), None) => format!("at least {least}"),
                (None, Some(most)) => format!("at most {most}"),
                (exact, _) => exact.map_or_else(String::new, |exact| exact.to_string()),
            };
            return Err(format!("the number{of} must be {range}"));
        }
        let text = value.as_str().unwrap_or_default();
        let parts = |mark| {
            text.split_once(mark)
                .is_some_and(|(a, b)| !a.is_empty() && !b.is_empty())
        };
        let (fits, what) = match self.schema["format"].as_str() {
            Some("date") => (
                text.parse::<Date>().is_ok_and(|date| date.to_string() == text),
                "a date such as 2026-11-03",
            ),
            Some("date-time") => (
                text.parse::<Timestamp>().is_ok(),
                "a date and time such as 2026-11-03T18:30:00Z",
            ),
            Some("email") => (parts('@'), "an email address"),
            Some("uri") => (parts(':'), "a URL such as https://example.com"),
            _ => return Ok(()),
        };
        fits.then_some(()).ok_or_else(|| format!("give {what}"))
    }

    /// Whether the field takes a value.
    fn takes(&self, value: &Value) -> bool {
        let is_offered = |value: &Value| self.options().iter().any(|option| option.value == *value);
        match self.kind {
            FieldKind::One(_) => is_offered(value),
            FieldKind::Some(_) => value
                .as_array()
                .is_some_and(|values| values.iter().all(is_offered)),
            FieldKind::Text => value.is_string(),
            FieldKind::WholeNumber => value.is_i64() || value.is_u64(),
            FieldKind::Number => value.is_number(),
            FieldKind::Json => true,
        }
    }

    /// The type of the value, as shown to the user.
    fn what(&self) -> &'static str {
        match self.kind {
            FieldKind::One(_) => "choose one",
            FieldKind::Some(_) => "choose any",
            FieldKind::Text => "text",
            FieldKind::WholeNumber => "whole number",
            FieldKind::Number => "number",
            FieldKind::Json => "JSON value",
        }
    }

    /// The lines that show the field: what it is about, and its options. `notes` follows its title.
    fn lines(&self, look: Look, name: &str, notes: &str) -> Vec<String> {
        let titles = [name, &self.title].into_iter().filter(|text| !text.is_empty());
        let mut words: Vec<String> = titles.map(|text| look.paint(STRONG, text)).collect();
        words.push(format!("({}{notes})", self.what()));
        let mut title = format!("  {}", words.join("  "));
        if !self.description.is_empty() {
            title.push_str(&format!("  {}", self.description));
        }
        let mut lines = vec![title];
        for (at, option) in self.options().iter().enumerate() {
            lines.push(self.option_line(look, at, &option.name, &option.description));
        }
        lines
    }

    fn option_line(&self, look: Look, at: usize, name: &str, description: &str) -> String {
        let key = match self.has_numbers() {
            true => format!("{}  ", look.paint(STRONG, &(at + 1).to_string())),
            false => String::new(),
        };
        let line = format!("    {key}{name}  {}", look.paint(DIM, description));
        line.trim_end().to_owned()
    }

    /// A text that answers the field, as a word of a shell.
    fn example(&self) -> String {
        match (&self.kind, self.options().first()) {
            (_, Some(option)) if option.name.starts_with(['-', '{']) || option.name == "n" => "1".to_owned(),
            (_, Some(option)) => shell_word(&option.name),
            (FieldKind::Text, _) => shell_quoted("Hello"),
            _ => "1".to_owned(),
        }
    }
}

/// Whether a word declines the form. An option of that name is chosen instead, but `n` always declines.
fn is_refusal(word: &str, field: Option<&Field>) -> bool {
    let names =
        |word: &str| field.is_some_and(|field| field.names().any(|name| name.eq_ignore_ascii_case(word)));
    let refuses = ["no", "deny", "cancel"]
        .iter()
        .any(|no| no.eq_ignore_ascii_case(word));
    word == "n" || (refuses && !names(word))
}

/// Checks that a word accepts a form without fields.
fn confirm(word: &str) -> Result<(), String> {
    match ["y", "yes", "allow"]
        .iter()
        .any(|yes| yes.eq_ignore_ascii_case(word))
    {
        true => Ok(()),
        false => Err(format!(
            "{} is not one of the answers; y accepts, n declines",
            one_line(word)
        )),
    }
}

impl Form {
    /// Reads the form of a request.
    pub(super) fn read(request: &RawJson) -> Self {
        let request: Request = request.read().unwrap_or_default();
        let schema = request.requested_schema.unwrap_or_default();
        let required = schema.required.unwrap_or_default();
        let properties = schema.properties.unwrap_or_default();
        let fields = properties.iter();
        let mut fields: Vec<Field> = fields
            .map(|(name, schema)| Field::read(name, schema, required.contains(name)))
            .collect();
        let mut pending: VecDeque<usize> = (0..fields.len()).collect();
        // Claude Code's adapter follows each question with a text field for an answer in the user's own words.
        for at in 1..fields.len() {
            let (before, after) = fields.split_at_mut(at);
            let (Some(question), Some(own)) = (before.last_mut(), after.first()) else {
                continue;
            };
            let is_own = own.name.strip_prefix(question.name.as_str()) == Some("_custom");
            let is_free = matches!(own.kind, FieldKind::Text) && !own.is_required && !question.is_required;
            if is_own && is_free && !question.options().is_empty() {
                let title = if own.title.is_empty() {
                    &own.name
                } else {
                    &own.title
                };
                question.own_words = Some((at, title.clone()));
                pending.retain(|field| *field != at);
            }
        }
        Self {
            url: request.url,
            fields,
            pending,
            given: Map::new(),
        }
    }

    /// The field that is being asked.
    fn current(&self) -> Option<&Field> {
        self.fields.get(*self.pending.front()?)
    }

    /// Whether nothing was answered or skipped yet.
    pub(super) fn is_untouched(&self) -> bool {
        // The first field is never one for the user's own words.
        self.fields.is_empty() || self.pending.front() == Some(&0)
    }

    /// The fields without those for the user's own words.
    fn asked(&self) -> impl Iterator<Item = &Field> {
        let is_own = |at: usize| {
            self.fields
                .iter()
                .any(|field| field.own_words.as_ref().is_some_and(|own| own.0 == at))
        };
        let fields = self.fields.iter().enumerate();
        fields.filter(move |(at, _)| !is_own(*at)).map(|(_, field)| field)
    }

    /// Whether nothing is to be filled in.
    pub(super) fn is_only_confirmed(&self) -> bool {
        self.fields.is_empty()
    }

    /// All fields, by the names that a command uses.
    pub(super) fn lines(&self, look: Look) -> Vec<String> {
        let page = self
            .url
            .iter()
            .map(|url| format!("  open {}", look.paint(STRONG, &escape_controls(url))));
        let fields = self.fields.iter().flat_map(|field| {
            let notes = if field.is_required { ", required" } else { "" };
            field.lines(look, &one_line(&field.name), notes)
        });
        page.chain(fields).collect()
    }

    /// The field that is being asked, with its options.
    pub(super) fn current_lines(&self, look: Look) -> Vec<String> {
        let Some(field) = self.current() else {
            return self.lines(look);
        };
        let total = self.asked().count();
        let place = match total {
            1 => String::new(),
            _ => format!(", {} of {total}", total + 1 - self.pending.len().min(total)),
        };
        let name = if field.title.is_empty() {
            one_line(&field.name)
        } else {
            String::new()
        };
        self.lines_of(field, look, &name, &place)
    }

    /// The lines of a field, and of the option for the user's own words.
    fn lines_of(&self, field: &Field, look: Look, name: &str, notes: &str) -> Vec<String> {
        let mut lines = field.lines(look, name, notes);
        if let Some((at, title)) = &field.own_words {
            let description = &self.fields[*at].description;
            lines.push(field.option_line(look, field.options().len(), title, description));
        }
        lines
    }

    /// The lines of the field that takes the most rows of the screen.
    pub(super) fn longest(&self, look: Look, rows: impl Fn(&[String]) -> usize) -> Vec<String> {
        let fields = self.fields.iter();
        let fields = fields.map(|field| self.lines_of(field, look, &one_line(&field.name), ", required"));
        fields
            .max_by_key(|lines| rows(lines))
            .unwrap_or_else(|| self.lines(look))
    }

    /// The keys that answer; empty if the answer is a line that ends with Enter, as for each field: if a key answered, an Enter
    /// after it would skip the next field.
    pub(super) fn keys(&self) -> String {
        match self.current() {
            None => "yn".to_owned(),
            Some(_) => String::new(),
        }
    }

    /// Whether the field may be skipped. A form in which nothing is answered is not sent.
    fn can_skip(&self) -> bool {
        let is_empty = self.given.is_empty() && self.pending.len() == 1;
        self.current().is_some_and(|field| !field.is_required) && !is_empty
    }

    /// How to answer, as one line; `decline` is the command that declines.
    pub(super) fn how(&self, decline: &str) -> String {
        let Some(field) = self.current() else {
            return "y accepts, n declines, ? helps".to_owned();
        };
        let skips = if self.can_skip() {
            ", Enter alone skips"
        } else {
            ""
        };
        let count = field.names().count();
        let numbers = if field.has_numbers() {
            format!("1-{count} or ")
        } else {
            String::new()
        };
        match field.kind {
            FieldKind::One(_) => {
                format!("{numbers}an option's name and Enter{skips}, n declines, ? helps")
            }
            FieldKind::Some(_) => {
                format!("{numbers}names with commas and Enter{skips}, n declines, ? helps")
            }
            FieldKind::Text => format!("type the answer and Enter{skips}; {decline} declines it"),
            _ => format!("type the answer and Enter{skips}, n declines, ? helps"),
        }
    }

    /// What a typed text does: the form after it and the note that confirms it, or nothing if it declines.
    pub(super) fn take(&self, typed: &str) -> Result<Option<(Self, String)>, String> {
        let typed = typed.trim();
        let current = self.current();
        if !current.is_some_and(|field| matches!(field.kind, FieldKind::Text)) && is_refusal(typed, current) {
            return Ok(None);
        }
        let mut next = self.clone();
        let Some(at) = next.pending.pop_front() else {
            return confirm(typed).map(|()| Some((next, "accepted".to_owned())));
        };
        let field = &self.fields[at];
        if typed.is_empty() {
            return match self.can_skip() {
                true => Ok(Some((next, "skipped".to_owned()))),
                false => Err("this needs an answer".to_owned()),
            };
        }
        let (value, has_own) = field.parse(typed)?;
        let said = match &value {
            Some(Value::String(text)) => one_line(text),
            Some(value) => one_line(&value.to_string()),
            None => field
                .own_words
                .as_ref()
                .map(|own| own.1.clone())
                .unwrap_or_default(),
        };
        next.given.extend(value.map(|value| (field.name.clone(), value)));
        if let Some((own, _)) = field.own_words.as_ref().filter(|_| has_own) {
            next.pending.push_front(*own);
        }
        Ok(Some((next, said)))
    }

    /// The outcome, once all fields were asked.
    pub(super) fn outcome(&self) -> Option<RawJson> {
        self.pending.is_empty().then(|| self.accepted(&self.given))
    }

    fn accepted(&self, content: &Map<String, Value>) -> RawJson {
        RawJson::from(match self.url {
            Some(_) => json!({"action": "accept"}),
            None => json!({"action": "accept", "content": content}),
        })
    }

    /// The words of a command that answer the form.
    pub(super) fn example(&self) -> String {
        let named = |field: &Field| format!("{}={}", shell_word(&one_line(&field.name)), field.example());
        let asked: Vec<&Field> = self.asked().collect();
        match asked.as_slice() {
            [] => "allow".to_owned(),
            [only] => only.example(),
            several => {
                let needed = |field: &&&Field| field.is_required || !field.options().is_empty();
                let words: Vec<String> = several.iter().filter(needed).map(|field| named(field)).collect();
                match words.is_empty() {
                    true => named(several[0]),
                    false => words.join(" "),
                }
            }
        }
    }

    /// The outcome of the words of a command: `NAME=VALUE` for each field, or the answer to the only one. Returns `None` if
    /// they decline.
    pub(super) fn answer(&self, words: &[String]) -> Result<Option<RawJson>, String> {
        let of_field = |word: &str| {
            let (name, text) = word.split_once('=')?;
            let field = self.fields.iter().find(|field| field.name == name)?;
            Some((field, text.to_owned()))
        };
        let asked: Vec<&Field> = self.asked().collect();
        let text = words.join(" ");
        let only = asked.first().filter(|_| asked.len() == 1).copied();
        // As at a terminal, "no" can be the answer to a question for a text.
        let is_text = only.is_some_and(|field| matches!(field.kind, FieldKind::Text));
        let is_answer = is_text && ["n", "no"].iter().any(|no| no.eq_ignore_ascii_case(&text));
        if !is_answer && is_refusal(&text, only) {
            return Ok(None);
        }
        let named: Option<Vec<_>> = words.iter().map(|word| of_field(word)).collect();
        let answers = match (named, asked.as_slice()) {
            (Some(named), _) => named,
            (None, []) => confirm(&text).map(|()| Vec::new())?,
            (None, [only]) if words.iter().all(|word| of_field(word).is_none()) => vec![(*only, text)],
            _ => {
                let names: Vec<String> = self.fields.iter().map(|field| one_line(&field.name)).collect();
                return Err(format!(
                    "name each field and its value; the fields: {}",
                    names.join(", ")
                ));
            }
        };
        let mut given = Map::new();
        for (field, text) in answers {
            let (value, has_own) = field.parse(&text)?;
            if let Some((own, title)) = field.own_words.as_ref().filter(|_| has_own) {
                let own = one_line(&self.fields[*own].name);
                return Err(format!("{title} needs your words in {own}"));
            }
            if given.contains_key(&field.name) {
                return Err(format!("{} was given twice", one_line(&field.name)));
            }
            given.extend(value.map(|value| (field.name.clone(), value)));
        }
        self.check(&given).map(|()| Some(self.accepted(&given)))
    }

    /// Whether these values fit the form; the error says why not.
    pub(super) fn check(&self, content: &Map<String, Value>) -> Result<(), String> {
        for (name, value) in content {
            let field = self.fields.iter().find(|field| field.name == *name);
            let name = one_line(name);
            let Some(field) = field else {
                let names: Vec<String> = self.fields.iter().map(|field| one_line(&field.name)).collect();
                return Err(format!(
                    "there is no field {name}; the fields: {}",
                    names.join(", ")
                ));
            };
            if !field.takes(value) {
                let offered: Vec<&str> = field
                    .options()
                    .iter()
                    .map(|option| option.name.as_str())
                    .collect();
                let offered = if offered.is_empty() {
                    field.what().to_owned()
                } else {
                    offered.join(", ")
                };
                return Err(format!(
                    "{} does not fit {name}: {offered}",
                    one_line(&value.to_string())
                ));
            }
            field.check_limits(value)?;
        }
        let missing = self
            .fields
            .iter()
            .find(|field| field.is_required && !content.contains_key(&field.name));
        missing.map_or(Ok(()), |field| {
            Err(format!("{} is missing", one_line(&field.name)))
        })
    }
}
