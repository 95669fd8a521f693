//! One round: a daemon whose agent is behind the proxy, and a client with some conversations.
//!
//! The client does several things at a time over one connection. Every call must be answered. The client
//! cancels turns that would never end, as a user would: a turn that may wait for a line that the proxy lost,
//! a turn that hangs by its script, and a turn whose question gets no answer.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::os::unix::net::UnixDatagram;
use std::rc::Rc;

use serde_json::{Value, json};

use super::effects::Effects;
use super::figures::Figures;
use super::kinds::{Fault, losses_of, note, noted};
use super::promises::Promise;
use super::proxy;
use crate::crash::client::{Answer, Client, Gone, Line};
use crate::crash::home::{Daemon, Home};
use crate::crash::ledger::{Answered, Ledger, text};
use crate::random::Random;

/// A directive in a prompt; the turn then ends only when it is cancelled.
pub(crate) const HANGS: &str = "[[hang]]";

/// How many lines may be read until nothing runs any more. A conversation may continue automatically a few
/// times, but not endlessly.
const MOST_LINES: usize = 20_000;

/// How many calls are open at a time.
const MOST_OPEN: usize = 3;

/// How many prompts are sent after the last fault, one of which must be answered. An agent without output is
/// given up after 2 s, in which up to four attempts to open a session fail; an earlier turn may also have to
/// be cancelled first.
const CALM_PROMPTS: usize = 7;

/// The percentage of conversations that get a last prompt even though their last turn ended well.
const PERCENT_ASKED: usize = 15;

/// The chance in percent that the daemon is killed after a line was read while a continuation is scheduled.
const PERCENT_KILLED_PROMISED: usize = 5;

/// The chance in percent that the daemon is killed after a continuation was cancelled.
const PERCENT_KILLED_CALLED_OFF: usize = 80;

/// Errors that any call may get without anything being wrong: busy, agent unavailable, agent error, limited,
/// not resumable (while each way to resume meets a fault), conflict (nothing to branch from), question
/// resolved.
const EXPECTED_ERRORS: [i64; 7] = [1003, 1006, 1007, 1009, 1011, 1012, 1013];

/// The timeouts are short, so that the daemon soon gives up waiting for lost lines.
const LIMITS: &str = "[limits]\ncancel_grace_ms = 150\nsession_open_ms = 500\nagent_start_ms = 2000\n";

/// A round and everything the client knows.
pub(crate) struct Round {
    pub(crate) home: Home,
    pub(crate) random: Random,
    /// Whether the round works on few conversations, so that their chains grow long.
    pub(crate) is_narrow: bool,
    /// The chance in percent that a step creates a conversation: a low value gives few long ones, a high
    /// value many short ones.
    pub(crate) percent_new: usize,
    pub(crate) client: Client,
    pub(crate) talks: Vec<Ledger>,
    /// The scheduled continuation of each conversation, in the order of `talks`.
    pub(crate) promises: Vec<Promise>,
    pub(crate) effects: Effects,
    /// The prompts that were sent, by their marks.
    pub(crate) sent: BTreeMap<String, Sent>,
    /// Marks of texts that must not have been sent, each with the index of its conversation.
    pub(crate) never: Vec<(usize, String)>,
    /// The questions that events have reported.
    questions: BTreeSet<String>,
    pub(crate) figures: Figures,
    /// `None` once it has been stopped.
    daemon: Option<Daemon>,
    open: BTreeMap<u64, Open>,
    /// Whether the last answer confirmed that a scheduled continuation was cancelled.
    has_called_off: bool,
    keys: u64,
    /// The socket on which the proxies report that they lost a line.
    losses: UnixDatagram,
    /// All calls, answers and events so far, printed if the round fails.
    past: Vec<Past>,
}

/// A call, an answer or an event. It is formatted only if the round fails.
#[derive(Debug)]
enum Past {
    Asked(u64, &'static str, Value),
    Answered(u64, Answer),
    Heard(Rc<Value>),
}

impl fmt::Display for Past {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked(id, method, params) => write!(formatter, "{id} is asked: {method} {params}"),
            Self::Answered(id, Ok(result)) => write!(formatter, "{id} is answered: {result}"),
            Self::Answered(id, Err(error)) => write!(formatter, "{id} is refused: {error}"),
            Self::Heard(event) => event.fmt(formatter),
        }
    }
}

/// The state of a prompt.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    /// Whether the turn must take effect when it ends well.
    pub(crate) has_effect: bool,
    pub(crate) has_ended_well: bool,
}

/// What a call asked for.
#[derive(Clone, Debug)]
pub(crate) enum Asked {
    New,
    Prompt {
        text: String,
        mark: String,
    },
    /// Schedules a continuation, with a text that contains this mark.
    Continue {
        mark: Option<String>,
    },
    /// Cancels the scheduled continuation.
    CallOff {
        /// Whether one was scheduled.
        is_one: bool,
    },
    /// `history` is the expected history at the time of the call.
    Fork {
        in_place: bool,
        history: Vec<String>,
    },
    Resume,
    Close,
    Cancel,
    Subscribe,
    Chain,
    Lineage,
    Respond(String),
    /// A repeated call with the same request id, and its earlier answer.
    Again(Value),
}

/// A call that is not answered yet.
#[derive(Clone, Debug)]
struct Open {
    asked: Asked,
    talk: Option<usize>,
    method: &'static str,
    params: Value,
    /// Whether a `conversation/cancel` sent after the call may have cancelled it.
    may_be_cancelled: bool,
}

impl Round {
    pub(crate) fn new(seed: u64) -> Self {
        let home = Home::new("");
        home.configure(&format!("{LIMITS}{}", proxy::configured(home.path(), seed)));
        let effects = Effects::below(&home.path().join("project"));
        let losses = UnixDatagram::bind(losses_of(home.path())).unwrap();
        losses.set_nonblocking(true).unwrap();
        let daemon = home.start();
        let client = Client::connect(&home.socket()).unwrap();
        let mut random = Random::new(seed);
        let is_narrow = random.chance(20);
        Self {
            is_narrow,
            percent_new: if is_narrow { 1 } else { random.pick(&[12, 25, 50]) },
            random,
            client,
            talks: Vec::new(),
            promises: Vec::new(),
            never: Vec::new(),
            questions: BTreeSet::new(),
            effects,
            sent: BTreeMap::new(),
            figures: Figures::default(),
            daemon: Some(daemon),
            open: BTreeMap::new(),
            has_called_off: false,
            keys: 0,
            losses,
            past: Vec::new(),
            home,
        }
    }

    /// Runs the whole round.
    pub(crate) fn play(&mut self) -> Figures {
        let lives = 1 + self.random.below(3);
        for life in 1..=lives {
            let steps = (18 + self.random.below(54)) * if self.is_narrow { 2 } else { 1 };
            let lines = (life < lives).then(|| self.random.below(600));
            self.live(steps, lines);
            if life < lives {
                self.kill_and_start();
            }
        }
        proxy::calm(self.home.path());
        self.keep_promises();
        for talk in 0..self.talks.len() {
            if !self.promises[talk].is_sound || self.random.chance(PERCENT_ASKED) {
                self.must_be_answered(talk);
            }
        }
        self.verify();
        self.figures.rounds = 1;
        self.figures.conversations = self.talks.len();
        self.figures.faults = noted(self.home.path());
        self.daemon.take().unwrap().stop();
        self.home.assert_at_rest();
        std::mem::take(&mut self.figures)
    }

    /// A request id that no other call has.
    pub(crate) fn key(&mut self) -> String {
        self.keys += 1;
        format!("key-{}", self.keys)
    }

    /// Performs this many steps and waits until all calls are answered, or stops after this many lines.
    fn live(&mut self, steps: usize, lines: Option<usize>) {
        let (mut begun, mut read) = (0, 0);
        while lines.is_none_or(|lines| read < lines) {
            let calls_off = self
                .open
                .values()
                .any(|open| matches!(open.asked, Asked::CallOff { .. }));
            let lets_wait = calls_off || self.is_narrow && !self.busy().is_empty() && !self.random.chance(5);
            if begun < steps && self.open.len() < MOST_OPEN && !lets_wait {
                self.step();
                begun += 1;
            } else if self.open.is_empty() {
                return;
            } else {
                read += self.read_on();
                let is_promised = self.promises.iter().any(|promise| promise.at().is_some());
                let percent = match (std::mem::take(&mut self.has_called_off), is_promised) {
                    (true, _) => PERCENT_KILLED_CALLED_OFF,
                    (false, true) => PERCENT_KILLED_PROMISED,
                    (false, false) => 0,
                };
                if lines.is_some() && self.random.chance(percent) {
                    return;
                }
            }
        }
    }

    /// Waits until every call is answered and no turn runs, including automatic ones.
    pub(crate) fn settle(&mut self) {
        let mut read = 0;
        while !self.open.is_empty() || self.promises.iter().any(Promise::runs) {
            read += self.read_on();
            assert!(read < MOST_LINES, "the conversations never come to rest");
        }
        for promise in &self.promises {
            promise.assert_explained();
        }
    }

    /// Reads a line, or learns that a line between the daemon and the agent was lost. Returns how many lines
    /// were read.
    pub(crate) fn read_on(&mut self) -> usize {
        match self.client.read_unless(&self.losses) {
            Ok(Some(Line::Event(event))) => {
                let event = Rc::new(event);
                if event["event"]["type"] != "update" {
                    self.past.push(Past::Heard(Rc::clone(&event)));
                }
                self.hear(&event);
                1
            }
            Ok(Some(Line::Answer(id, answer))) => {
                self.past.push(Past::Answered(id, answer.clone()));
                self.answered(id, answer);
                1
            }
            Ok(None) => {
                self.give_up_what_may_wait();
                0
            }
            Err(Gone) => panic!("the daemon is gone"),
        }
    }

    /// Cancels every turn that may wait for a lost line. The daemon started that turn before the line was
    /// lost, so the cancellation reaches it. Where no turn runs, the cancellation has no effect.
    fn give_up_what_may_wait(&mut self) {
        while self.losses.recv(&mut [0; 8]).is_ok() {}
        let prompted = self.prompted();
        let may_run = |talk: &usize| {
            let promise = &self.promises[*talk];
            prompted.contains(talk) || promise.runs() || promise.at().is_some()
        };
        let talks: Vec<usize> = (0..self.talks.len()).filter(may_run).collect();
        for talk in talks {
            self.figures.given_up += 1;
            self.cancel(talk);
        }
    }

    fn cancel(&mut self, talk: usize) {
        self.ask(Asked::Cancel, Some(talk), "conversation/cancel", json!({}));
    }

    /// Sends a call about a conversation.
    pub(crate) fn ask(&mut self, asked: Asked, talk: Option<usize>, method: &'static str, params: Value) {
        self.send(asked, talk, method, params);
    }

    /// The same as [`Self::ask`]; returns the number of the call.
    fn send(&mut self, asked: Asked, talk: Option<usize>, method: &'static str, mut params: Value) -> u64 {
        if let Some(talk) = talk {
            params["conversationId"] = json!(self.talks[talk].id);
            if matches!(asked, Asked::Cancel) {
                let here = self.open.values_mut().filter(|open| open.talk == Some(talk));
                here.for_each(|open| open.may_be_cancelled = true);
            }
        }
        let Ok(id) = self.client.send(method, &params) else {
            panic!("the daemon is gone");
        };
        self.past.push(Past::Asked(id, method, params.clone()));
        let open = Open {
            asked,
            talk,
            method,
            params,
            may_be_cancelled: false,
        };
        self.open.insert(id, open);
        id
    }

    /// The conversations with an open call that others must wait for.
    pub(crate) fn busy(&self) -> BTreeSet<usize> {
        let changes = self.open.values().filter(|open| open.is_change());
        changes.filter_map(|open| open.talk).collect()
    }

    /// The conversations with an open prompt.
    pub(crate) fn prompted(&self) -> BTreeSet<usize> {
        let turns = self.open.values().filter(|open| open.is_turn());
        turns.filter_map(|open| open.talk).collect()
    }

    /// Whether a call is open that may schedule a continuation of the conversation or cancel it.
    pub(crate) fn may_promise(&self, talk: usize) -> bool {
        let is_none = |asked: &Asked| matches!(asked, Asked::Subscribe | Asked::Chain | Asked::Lineage);
        let mut open = self.open.values();
        open.any(|open| open.talk == Some(talk) && !is_none(&open.asked))
    }

    fn hear(&mut self, envelope: &Value) {
        let id = &envelope["conversationId"];
        let event = &envelope["event"];
        let Some(talk) = self.talks.iter().position(|talk| *id == talk.id.as_str()) else {
            return;
        };
        self.talks[talk].hear(event);
        let follows = self.promises[talk].hear(event);
        self.follow(talk, follows);
        self.figures.limits += usize::from(event["type"] == "limited");
        self.figures.rolls += usize::from(event["type"] == "rolled");
        // A restarted daemon may have continued the conversation, and the agent may have asked a question,
        // before the client subscribed; the snapshot then contains the question.
        let questions = match event["type"].as_str() {
            Some("interruptRaised") => std::slice::from_ref(&event["interrupt"]),
            Some("snapshot") => event["conversation"]["interrupts"].as_array().unwrap(),
            _ => &[],
        };
        for question in questions {
            let is_orphaned = question["orphaned"] == true;
            let question = text(question, "id");
            let is_new = self.questions.insert(question.clone());
            if is_orphaned && event["type"] == "snapshot" || !is_orphaned && !is_new {
                continue;
            }
            if self.random.chance(80) {
                let choice = self.random.pick(&["allow_once", "allow_once", "reject_once"]);
                self.respond(talk, question, choice);
            } else {
                self.cancel(talk);
            }
        }
        if event["type"] == "promptAccepted" && event["prompt"].to_string().contains(HANGS) {
            self.cancel(talk);
        }
    }

    fn answered(&mut self, id: u64, answer: Answer) {
        let open = self.open.remove(&id).expect("a call was answered twice");
        if let Err(error) = &answer {
            let code = error["code"].as_i64().unwrap();
            assert!(EXPECTED_ERRORS.contains(&code), "{open:?}: {error}");
            *self.figures.refused.entry(code).or_default() += 1;
            if let Some(talk) = open.talk.filter(|_| code != 1003) {
                self.promises[talk].is_sound = false;
            }
        }
        let result = match (&open.asked, answer) {
            (Asked::Again(before), again) => {
                assert_eq!(again.as_ref(), Ok(before), "{open:?}");
                return;
            }
            (Asked::Subscribe | Asked::Cancel | Asked::Chain | Asked::Lineage, Err(error)) => {
                panic!("{open:?}: {error}")
            }
            (_, Err(_)) => return,
            (_, Ok(result)) => result,
        };
        let Some(talk) = open.talk else {
            return self.adopt(Ledger::of(&result["conversation"]));
        };
        self.keep(talk, &open, &result);
        let ledger = &mut self.talks[talk];
        match open.asked {
            Asked::Prompt { text, mark } => {
                ledger.saw_turn(&text, &result);
                let is_to_wait = open.params["onLimit"] == "wait"
                    && result["failure"]["kind"] == "rateLimited"
                    && !open.may_be_cancelled;
                assert!(
                    !is_to_wait || result["continuation"].is_object(),
                    "the turn met a limit and no continuation was scheduled: {result}"
                );
                let ended_well = result["stopReason"] == "end_turn";
                self.sent.get_mut(&mark).unwrap().has_ended_well |= ended_well;
                self.figures.ended_well += usize::from(ended_well);
                self.figures.failed_turns += usize::from(result["stopReason"] == "failed");
            }
            Asked::Fork { in_place: true, .. } => {
                ledger.saw_conversation(&result["conversation"]);
                ledger.saw_link(&result["link"]);
                if result["fidelity"] != "full" {
                    ledger.history.clear();
                }
            }
            Asked::Fork { mut history, .. } => {
                let mut branch = Ledger::of(&result["conversation"]);
                if result["link"].is_object() {
                    branch.saw_link(&result["link"]);
                    // A turn that the original reported as lost since then was already lost at the fork.
                    history.retain(|known| ledger.history.contains(known));
                    if result["fidelity"] == "full" {
                        branch.history = history;
                        branch.missing = ledger.missing;
                    }
                }
                self.adopt(branch);
            }
            Asked::Resume => {
                ledger.saw_conversation(&result["conversation"]);
                ledger.saw_upstream(&result["resumed"]["upstreamId"]);
            }
            Asked::Respond(question) => {
                ledger.answered_questions.insert(question);
            }
            Asked::Chain => {
                for link in result["links"].as_array().unwrap() {
                    ledger.saw_link(link);
                }
            }
            Asked::Lineage => ledger.saw_lineage(result["entries"].as_array().unwrap()),
            Asked::Continue { mark } => {
                let follows = self.promises[talk].is_promised(mark);
                self.follow(talk, follows);
            }
            Asked::CallOff { is_one } => {
                let is_sure = !self.may_promise(talk);
                let follows = self.promises[talk].is_called_off(is_sure);
                self.figures.called_off += usize::from(is_one);
                self.has_called_off = is_one;
                self.follow(talk, follows);
            }
            Asked::Cancel if result["cancelled"] == true => self.promises[talk].is_dropped(),
            Asked::New | Asked::Close | Asked::Cancel | Asked::Subscribe | Asked::Again(_) => {}
        }
    }

    fn adopt(&mut self, ledger: Ledger) {
        self.promises.push(Promise::of(&ledger.id));
        self.talks.push(ledger);
        let last = self.talks.len() - 1;
        self.ask(Asked::Subscribe, Some(last), "conversation/subscribe", json!({}));
    }

    /// Whether a `conversation/cancel` for this conversation is still open.
    pub(crate) fn is_being_cancelled(&self, talk: usize) -> bool {
        let mut open = self.open.values();
        open.any(|open| open.talk == Some(talk) && open.method == "conversation/cancel")
    }

    /// Remembers an answer that a repeated call with the same request id must get again.
    fn keep(&mut self, talk: usize, open: &Open, result: &Value) {
        let is_told_again = matches!(
            open.asked,
            Asked::Prompt { .. } | Asked::Fork { .. } | Asked::Continue { .. }
        );
        if open.params["requestId"].is_string() && is_told_again {
            self.talks[talk].answered.push(Answered {
                method: open.method,
                params: open.params.clone(),
                result: result.clone(),
            });
        }
    }

    /// Kills the daemon and starts another. It must know everything that was acknowledged; calls without an
    /// answer are sent again.
    fn kill_and_start(&mut self) {
        note(self.home.path(), Fault::KillDaemon);
        self.daemon.take().unwrap().kill();
        for talk in 0..self.talks.len() {
            let is_unsure = self.may_promise(talk);
            self.promises[talk].restarts(is_unsure);
        }
        let open = std::mem::take(&mut self.open);
        let daemon = self.home.start();
        self.home.assert_only_those_of(&daemon);
        self.daemon = Some(daemon);
        self.client = Client::connect(&self.home.socket()).unwrap();
        self.verify_chains();
        for talk in 0..self.talks.len() {
            self.ask(Asked::Subscribe, Some(talk), "conversation/subscribe", json!({}));
        }
        for open in open.into_values() {
            let is_change = open.is_change() || matches!(open.asked, Asked::New);
            if is_change && open.params["requestId"].is_string() {
                let id = self.send(open.asked, open.talk, open.method, open.params);
                self.open.get_mut(&id).unwrap().may_be_cancelled = open.may_be_cancelled;
            }
        }
        self.settle();
    }

    /// Sends prompts after the last fault until one is answered.
    fn must_be_answered(&mut self, talk: usize) {
        self.settle();
        for _ in 0..CALM_PROMPTS {
            let mark = self.mark();
            let prompt = format!("{mark} {}", Effects::directive(&mark));
            self.prompt(talk, &mark, prompt, true);
            self.settle();
            if self.sent[&mark].has_ended_well {
                return;
            }
        }
        let client = &mut self.client;
        let params = json!({"conversationId": self.talks[talk].id});
        let view = client.call("conversation/get", &params);
        panic!("none of {CALM_PROMPTS} prompts after the last fault was answered: {view:#}");
    }
}

impl Open {
    /// Whether the call may take forever.
    fn is_turn(&self) -> bool {
        matches!(self.asked, Asked::Prompt { .. })
    }

    /// Whether the conversation is busy until the call is answered.
    fn is_change(&self) -> bool {
        let changes = matches!(self.asked, Asked::Fork { .. } | Asked::Resume | Asked::Close);
        changes || self.is_turn()
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "{}\n{}\nopen: {:#?}",
                self.past
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join("\n"),
                self.home.last_words(),
                self.open
            );
        }
    }
}
