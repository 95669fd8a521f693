//! Questions with options or fields of their own (ACP's elicitation), at a terminal and in a command.

use std::fs;

use serde_json::{Value, json};

use super::home::Home;
use super::printed::commands;
use super::terminal::{ASKED, Terminal};
use super::text;
use crate::scripted;

/// A home with an agent that asks what its prompt says, and a conversation with it.
struct Asking {
    home: Home,
    id: String,
}

impl Asking {
    fn new() -> Self {
        let home = Home::new();
        let log = home.path().join("asking.log");
        let config = scripted::configured("asking", None).replace("asking.log", log.to_str().unwrap());
        home.configure(&config);
        let id = home.said(&["new", "--agent", "asking"]);
        Self { home, id }
    }

    /// A terminal at which these parameters are asked.
    fn terminal(&self, params: &Value) -> Terminal {
        Terminal::run_plain(&self.home, 80, &["send", &self.id, &script(params)])
    }

    /// Leaves this question open, and gives what was printed of it.
    fn left(&self, params: &Value) -> String {
        let sent = self.home.run(&["send", &self.id, &script(params)]);
        assert_eq!(sent.status.code(), Some(8), "{sent:?}");
        text(&sent.stderr)
    }

    /// Waits until the turn has ended, and returns the last answer that the agent got.
    fn answered(&self) -> Value {
        self.home.once(&self.id, |shown| shown["state"] == "idle");
        let log = fs::read_to_string(self.home.path().join("asking.log")).unwrap();
        let mut lines = log
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let answer = lines.rfind(|line| line["id"] == "e-1" && line["method"].is_null());
        answer.unwrap()["result"].clone()
    }
}

/// A script that makes the agent ask this question and wait for the answer.
fn script(params: &Value) -> String {
    let method = match params["toolCall"].is_null() {
        true => "elicitation/create",
        false => "session/request_permission",
    };
    let params = params.to_string();
    let params = params.replacen('{', r#"{"sessionId":$S,"#, 1);
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":\"e-1\",\"method\":\"{method}\",\"params\":{params}}}\nawait \"e-1\""
    )
}

/// The fields that Claude Code's adapter sends for a question.
fn asked(at: usize, title: &str, description: Option<&str>, options: &[[&str; 2]], is_list: bool) -> String {
    let options = options
        .iter()
        .map(|[label, why]| json!({"const": label, "title": label, "description": why}));
    let options: Vec<Value> = options.collect();
    let field = match is_list {
        true => {
            json!({"type": "array", "title": title, "description": description, "items": {"anyOf": options}})
        }
        false => json!({"type": "string", "title": title, "description": description, "oneOf": options}),
    };
    let own = json!({"type": "string", "title": "Other", "description": "Type your own answer (optional)."});
    format!(r#""question_{at}":{field},"question_{at}_custom":{own}"#)
}

fn form(message: &str, properties: &str, required: &[&str]) -> Value {
    let properties: Value = serde_json::from_str(&format!("{{{properties}}}")).unwrap();
    let schema = json!({"type": "object", "properties": properties, "required": required});
    json!({"mode": "form", "message": message, "requestedSchema": schema})
}

/// One question.
fn colour() -> Value {
    let options = [["Red", "warm"], ["Blue", "cold"]];
    form("Which colour?", &asked(0, "Colour", None, &options, false), &[])
}

/// Two questions; the second takes several options.
fn house() -> Value {
    let colour = asked(
        0,
        "Colour",
        Some("Which colour?"),
        &[["Red", "warm"], ["Blue", "cold"]],
        false,
    );
    let rooms = [["Kitchen", ""], ["Hall, with stairs", ""], ["Attic", "dusty"]];
    let rooms = asked(1, "Rooms", Some("Which rooms?"), &rooms, true);
    form(
        "Please answer the following questions.",
        &format!("{colour},{rooms}"),
        &[],
    )
}

fn accepted(content: &Value) -> Value {
    json!({"action": "accept", "content": content})
}

#[test]
fn a_question_with_options_is_answered_by_number_or_name() {
    let asking = Asking::new();
    let own = json!({"question_0_custom": "Green n all"});
    for (typed, expected) in [
        (&["2\r"][..], accepted(&json!({"question_0": "Blue"}))),
        (&["blue\r"], accepted(&json!({"question_0": "Blue"}))),
        (&["3\r", "Green n all\r"], accepted(&own)),
        (&["other\r", "\x1b[200~Green n all\x1b[201~\r"], accepted(&own)),
        (&["n\r"], json!({"action": "decline"})),
    ] {
        let mut terminal = asking.terminal(&colour());
        let shown = terminal.until(ASKED);
        for words in ["? Which colour?", "1  Red  warm", "2  Blue  cold", "3  Other"] {
            assert!(shown.contains(words), "{words}: {shown}");
        }
        assert!(shown.contains("n declines"), "{shown}");
        terminal.type_in(typed[0]);
        for words in &typed[1..] {
            terminal.until("type the answer and Enter");
            terminal.until("declines it");
            terminal.type_in(words);
        }
        terminal.exits(0);
        assert_eq!(asking.answered(), expected, "{typed:?}");
    }
}

#[test]
fn what_is_not_offered_is_no_answer_at_a_terminal() {
    let asking = Asking::new();
    let mut terminal = asking.terminal(&colour());
    terminal.until(ASKED);
    // Enter alone does not send an empty form.
    terminal.type_in("Nonsense\r\r");
    let told = terminal.until("Red, Blue, Other");
    assert!(told.contains("Nonsense is not offered"), "{told}");
    terminal.until("needs an answer");
    terminal.type_in("4\r");
    terminal.until("4 is not offered");
    terminal.until(ASKED);
    terminal.type_in("1\r");
    terminal.exits(0);
    assert_eq!(asking.answered(), accepted(&json!({"question_0": "Red"})));
}

#[test]
fn several_questions_are_asked_one_after_the_other() {
    let asking = Asking::new();
    let mut terminal = asking.terminal(&house());
    let shown = terminal.until(ASKED);
    assert!(
        shown.contains("Which colour?") && !shown.contains("Kitchen"),
        "{shown}"
    );
    terminal.type_in("\r");
    let shown = terminal.until(ASKED);
    assert!(
        shown.contains("Which rooms?") && shown.contains("3  Attic  dusty"),
        "{shown}"
    );
    terminal.type_in("3, hall, with stairs, 4\r");
    terminal.until("type the answer and Enter");
    terminal.until("declines it");
    terminal.type_in("cellar\r");
    terminal.exits(0);
    let content = json!({"question_1": ["Attic", "Hall, with stairs"], "question_1_custom": "cellar"});
    assert_eq!(asking.answered(), accepted(&content));
}

/// A server's form can have text, number, boolean and option fields. They are asked in the order of the schema.
#[test]
fn a_form_has_fields_of_other_kinds() {
    let asking = Asking::new();
    let schema = r#"{"type":"object","required":["zone","name"],"properties":{
        "zone":{"type":"string","enum":["eu-1","us-1"]},
        "name":{"type":"string","title":"Name"},
        "count":{"type":"integer"},
        "fast":{"type":"boolean","description":"Use the fast lane"}}}"#
        .replace('\n', "");
    let script = script(&json!({"mode": "form", "message": "Where?", "requestedSchema": "HERE"}))
        .replace("\"HERE\"", &schema);
    let mut terminal = Terminal::run_plain(&asking.home, 80, &["send", &asking.id, &script]);
    terminal.until("1  eu-1");
    terminal.until(ASKED);
    // The field is required.
    terminal.type_in("\r");
    terminal.until("needs an answer");
    terminal.type_in("2\r");
    terminal.until("Name");
    terminal.until("declines it");
    terminal.type_in("n\r");
    terminal.until("count");
    terminal.until(ASKED);
    terminal.type_in("many\r");
    terminal.until("many is not a whole number");
    terminal.type_in("12\r");
    terminal.until("Use the fast lane");
    terminal.until(ASKED);
    terminal.type_in("no\r");
    terminal.exits(0);
    let content = json!({"zone": "us-1", "name": "n", "count": 12, "fast": false});
    assert_eq!(asking.answered(), accepted(&content));
}

/// The printed command answers the question. An error about a value that is not offered lists the offered values.
#[test]
fn a_question_with_options_is_answered_in_a_command() {
    let asking = Asking::new();
    let (home, id) = (&asking.home, &asking.id);
    let told = asking.left(&colour());
    let shown = home.said(&["show", id]);
    for told in [&told, &shown] {
        for words in [
            "? Which colour?",
            "1  Red  warm",
            "2  Blue  cold",
            "question_0_custom",
        ] {
            assert!(told.contains(words), "{words}: {told}");
        }
    }
    let hints = commands(&told);
    let [accepts, declines, follows] = hints[..] else {
        panic!("{told}")
    };
    assert!(follows.starts_with("sessionctl attach"), "{told}");
    for wrong in [
        &["Nonsense"][..],
        &["3"],
        &["question_1=Blue"],
        &["question_0=Nonsense"],
        &[r#"{"action":"accept","content":{"question_0":"Nonsense"}}"#],
        &[r#"{"action":"accept","content":{"question_9":"Blue"}}"#],
        &[r#"{"outcome":"accept","content":{"question_0":5}}"#],
    ] {
        let refused = home.run(&[&["answer", id], wrong].concat());
        assert_eq!(refused.status.code(), Some(2), "{wrong:?} {refused:?}");
        let told = text(&refused.stderr);
        assert!(told.starts_with("error: invalid answer: "), "{told}");
        assert!(told.contains("Blue") || told.contains("question_0"), "{told}");
        assert_eq!(commands(&told), [accepts, declines], "{told}");
    }
    // Without an answer and without a terminal, the question is shown.
    let asked = home.run(&["answer", id]);
    assert_eq!(asked.status.code(), Some(8), "{asked:?}");
    assert!(text(&asked.stderr).contains("2  Blue  cold"), "{asked:?}");
    home.said_pasted(accepts);
    assert_eq!(asking.answered(), accepted(&json!({"question_0": "Red"})));
    asking.left(&colour());
    let declines = commands(&text(&home.run(&["answer", id]).stderr))[1].to_owned();
    home.said_pasted(&declines);
    assert_eq!(asking.answered(), json!({"action": "decline"}));
    for (words, content) in [
        (&["blue"][..], json!({"question_0": "Blue"})),
        (&["2"], json!({"question_0": "Blue"})),
        (
            &["question_0_custom=my own"],
            json!({"question_0_custom": "my own"}),
        ),
        (
            &[r#"{"action":"accept","content":{"question_0":"Red"}}"#],
            json!({"question_0": "Red"}),
        ),
    ] {
        asking.left(&colour());
        home.said(&[&["answer", id], words].concat());
        assert_eq!(asking.answered(), accepted(&content), "{words:?}");
    }
}

#[test]
fn several_questions_are_answered_by_their_names_in_a_command() {
    let asking = Asking::new();
    let (home, id) = (&asking.home, &asking.id);
    let told = asking.left(&house());
    assert!(
        told.contains("Which rooms?") && told.contains("3  Attic  dusty"),
        "{told}"
    );
    home.said_pasted(commands(&told)[0]);
    let content = json!({"question_0": "Red", "question_1": ["Kitchen"]});
    assert_eq!(asking.answered(), accepted(&content));
    asking.left(&house());
    let refused = home.run(&["answer", id, "Blue"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    home.said(&["answer", id, "question_0=blue", "question_1=1,attic"]);
    let content = json!({"question_0": "Blue", "question_1": ["Kitchen", "Attic"]});
    assert_eq!(asking.answered(), accepted(&content));
    // A chat asks the questions too.
    asking.left(&house());
    let mut chat = Terminal::run_plain(home, 80, &["chat", id]);
    chat.until(ASKED);
    chat.type_in("1\r");
    chat.until("Which rooms?");
    chat.until(ASKED);
    chat.type_in("2\r");
    chat.until(super::terminal::MARK);
    chat.leave();
    let content = json!({"question_0": "Red", "question_1": ["Hall, with stairs"]});
    assert_eq!(asking.answered(), accepted(&content));
}

/// The question shows the URL of the page, and `allow` accepts it without JSON.
#[test]
fn a_page_to_open_is_shown() {
    let asking = Asking::new();
    let page =
        json!({"mode": "url", "message": "Sign in", "url": "https://example.com/a", "elicitationId": "p"});
    for (typed, action) in [("y", "accept"), ("n", "decline")] {
        let mut terminal = asking.terminal(&page);
        terminal.until("https://example.com/a");
        terminal.until(ASKED);
        terminal.type_in(typed);
        terminal.exits(0);
        assert_eq!(asking.answered()["action"], action);
    }
    asking.left(&page);
    asking.home.said(&["answer", &asking.id, "allow"]);
    assert_eq!(asking.answered(), json!({"action": "accept"}));
}

/// If options are named by numbers, a number means the name and not the position.
#[test]
fn an_option_that_is_a_number_is_meant_by_its_name() {
    let asking = Asking::new();
    let schema = json!({"type": "object", "properties": {"n": {"type": "string", "enum": ["3", "2", "1"]}}});
    let params = json!({"mode": "form", "message": "How many?", "requestedSchema": schema});
    let mut terminal = asking.terminal(&params);
    terminal.until(ASKED);
    terminal.type_in("1\r");
    terminal.exits(0);
    assert_eq!(asking.answered(), accepted(&json!({"n": "1"})));
}

/// A permission with options that have no key of their own.
fn permission() -> Value {
    let option = |at: usize, kind: &str| {
        json!({"optionId": format!("o-{at}"),
        "name": format!("Option number {at}"), "kind": kind})
    };
    let options = [
        option(1, "allow_once"),
        option(2, "allow_once"),
        option(3, "allow_once"),
        option(4, "reject_once"),
    ];
    json!({"toolCall": {"toolCallId": "t", "title": "Really?"}, "options": options})
}

#[test]
fn a_number_is_the_place_among_the_agents_options() {
    let asking = Asking::new();
    let mut terminal = asking.terminal(&permission());
    let shown = terminal.until(ASKED);
    for at in 2..=3 {
        let words = format!("{at}          Option number {at}");
        assert!(shown.contains(&words), "{words}: {shown}");
    }
    terminal.type_in("3");
    terminal.exits(0);
    assert_eq!(
        asking.answered()["outcome"],
        json!({"outcome": "selected", "optionId": "o-3"})
    );
    // `answer` accepts the same keys as the terminal.
    for (key, option) in [("y", "o-1"), ("n", "o-4"), ("2", "o-2")] {
        asking.left(&permission());
        asking.home.said(&["answer", &asking.id, key]);
        assert_eq!(asking.answered()["outcome"]["optionId"], option, "{key}");
    }
    asking.left(&permission());
    let refused = asking.home.run(&["answer", &asking.id, "a"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}

/// A number of two digits begins with a digit that is an answer too, so that Enter ends each.
#[test]
fn each_of_more_than_nine_options_can_be_chosen() {
    let asking = Asking::new();
    let option = |at: usize| json!({"optionId": format!("o-{at}"), "name": format!("Option number {at}"), "kind": "allow_once"});
    let options: Vec<Value> = (1..=12).map(option).collect();
    let params = json!({"toolCall": {"toolCallId": "t", "title": "Which?"}, "options": options});
    let mut terminal = asking.terminal(&params);
    let shown = terminal.until(ASKED);
    for at in 1..=12 {
        assert!(shown.contains(&format!("Option number {at}\r")), "{at}: {shown}");
    }
    terminal.type_in("13\r");
    terminal.until("13 is not one of the answers");
    terminal.type_in("12\r");
    terminal.exits(0);
    assert_eq!(asking.answered()["outcome"]["optionId"], "o-12");
    for (word, option) in [("11", "o-11"), ("2", "o-2"), ("y", "o-1")] {
        asking.left(&params);
        asking.home.said(&["answer", &asking.id, word]);
        assert_eq!(asking.answered()["outcome"]["optionId"], option, "{word}");
    }
}

/// The limits of the schema hold where an answer is typed, and in a command.
#[test]
fn an_answer_outside_the_limits_of_its_field_is_asked_for_again() {
    let asking = Asking::new();
    // Their names are in the order in which they are asked.
    let properties = r#""count":{"type":"integer","minimum":2,"maximum":9},
        "day":{"type":"string","format":"date"},
        "link":{"type":"string","format":"uri"},
        "mail":{"type":"string","format":"email"},
        "name":{"type":"string","title":"Name","minLength":2,"maxLength":4},
        "ratio":{"type":"number","minimum":0.5},
        "rooms":{"type":"array","minItems":2,"maxItems":2,"items":{"enum":["hall","attic","den"]}},
        "when":{"type":"string","format":"date-time"}"#;
    let params = form("Where?", properties, &["name"]);
    let fields = [
        ("count", "1", "the number must be 2 to 9", "9"),
        (
            "day",
            "2026-02-30",
            "give a date such as 2026-11-03",
            "2026-02-28",
        ),
        (
            "link",
            "example",
            "give a URL such as https://example.com",
            "https://example.com/a",
        ),
        ("mail", "nobody", "give an email address", "a@example.com"),
        (
            "name",
            "\u{e9}",
            "the number of characters must be 2 to 4",
            "\u{e9}\u{e9}",
        ),
        ("ratio", "0.4", "the number must be at least 0.5", "0.5"),
        ("rooms", "hall", "the number of options must be 2", "hall,den"),
        (
            "when",
            "noon",
            "give a date and time such as 2026-11-03T18:30:00Z",
            "2026-11-03T18:30:00Z",
        ),
    ];
    let mut terminal = asking.terminal(&params);
    for (name, wrong, told, right) in fields {
        terminal.until(if name == "name" { "Name" } else { name });
        terminal.until(" declines");
        terminal.type_in(&format!("{wrong}\r"));
        terminal.until(told);
        terminal.type_in(&format!("{right}\r"));
    }
    terminal.exits(0);
    let content = json!({"count": 9, "day": "2026-02-28", "link": "https://example.com/a", "mail": "a@example.com",
        "name": "\u{e9}\u{e9}", "ratio": 0.5, "rooms": ["hall", "den"], "when": "2026-11-03T18:30:00Z"});
    assert_eq!(asking.answered(), accepted(&content));

    asking.left(&params);
    let right = fields.map(|(name, _, _, right)| format!("{name}={right}"));
    for (at, (name, wrong, told, _)) in fields.iter().enumerate() {
        let mut words = right.clone();
        words[at] = format!("{name}={wrong}");
        let words = words.each_ref().map(String::as_str);
        let refused = asking.home.run(&[&["answer", &asking.id], &words[..]].concat());
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(text(&refused.stderr).contains(told), "{refused:?}");
    }
    let outcome = json!({"action": "accept", "content": {"name": "too long"}}).to_string();
    let refused = asking.home.run(&["answer", &asking.id, &outcome]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let right = right.each_ref().map(String::as_str);
    asking.home.said(&[&["answer", &asking.id], &right[..]].concat());
    assert_eq!(asking.answered(), accepted(&content));
}
