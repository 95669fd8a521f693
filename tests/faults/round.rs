//! One round: a daemon whose agent is behind the proxy, and a client with some conversations.
//!
//! The client does several things at a time over one connection. Every call has to be answered. A turn that would never end
//! is cancelled, as a user would: one that may wait for a line that the proxy lost, one that hangs by its script, and one
//! whose question gets no answer.

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

/// In a prompt: its turn ends only when it is cancelled.
pub(crate) const HANGS: &str = "[[hang]]";

/// How many lines may be read until nothing runs any more: a turn may go on by itself some times, and no more.
const MOST_LINES: usize = 20_000;

/// Calls that are open at a time.
const MOST_OPEN: usize = 3;

/// Prompts after the last fault, of which one has to be answered. An agent without output is given up after 2
/// s, in which four sessions are waited for in vain; a turn of before may have to be cancelled.
const CALM_PROMPTS: usize = 7;

/// How many of a hundred conversations are asked once more in the end although their last turn ended well.
const PERCENT_ASKED: usize = 15;

/// How often the daemon is killed, of a hundred times, when something was read while a conversation is to go
/// on by itself.
const PERCENT_KILLED_PROMISED: usize = 5;

/// The same when one was just called off.
const PERCENT_KILLED_CALLED_OFF: usize = 80;

/// What may come back for anything here without anything being wrong: busy, agent unavailable, agent error,
/// limited, not resumable (as long as each way to resume meets a fault), conflict (nothing to branch from),
/// question resolved.
const EXPECTED_ERRORS: [i64; 7] = [1003, 1006, 1007, 1009, 1011, 1012, 1013];

/// The deadlines are short, so that what is lost is given up soon.
const LIMITS: &str = "[limits]\ncancel_grace_ms = 150\nsession_open_ms = 500\nagent_start_ms = 2000\n";

/// See the module.
pub(crate) struct Round {
    pub(crate) home: Home,
    pub(crate) random: Random,
    /// Whether all is done to few conversations, so that their chains grow long.
    pub(crate) is_narrow: bool,
    /// How often of a hundred times a conversation is begun: few long ones, or many short ones.
    pub(crate) percent_new: usize,
    pub(crate) client: Client,
    pub(crate) talks: Vec<Ledger>,
    /// What each of them is to go on with by itself.
    pub(crate) promises: Vec<Promise>,
    pub(crate) effects: Effects,
    /// The prompts that were sent, by their marks.
    pub(crate) sent: BTreeMap<String, Sent>,
    /// Texts that must not have gone out, by their marks, with their conversations.
    pub(crate) never: Vec<(usize, String)>,
    /// The questions that were heard of.
    questions: BTreeSet<String>,
    pub(crate) figures: Figures,
    /// None once it has been stopped.
    daemon: Option<Daemon>,
    open: BTreeMap<u64, Open>,
    /// Whether the last answer called off what was to go on.
    has_called_off: bool,
    keys: u64,
    /// Where the proxies tell that they lost a line.
    losses: UnixDatagram,
    /// What was asked and told, for those who look into a failure.
    past: Vec<Past>,
}

/// What was asked or told; put in words for nobody but those who look into a failure.
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

/// A prompt, and what came of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    /// Whether its turn takes effect when it ends well.
    pub(crate) has_effect: bool,
    pub(crate) has_ended_well: bool,
}

/// What was asked for.
#[derive(Clone, Debug)]
pub(crate) enum Asked {
    New,
    Prompt {
        text: String,
        mark: String,
    },
    /// That it goes on by itself, with a text of this mark.
    Continue {
        mark: Option<String>,
    },
    /// That it does not.
    CallOff {
        /// Whether there was something to call off.
        is_one: bool,
    },
    /// With the history as it was when it was asked for.
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
    /// A call that was answered: again, with the answer that it had.
    Again(Value),
}

/// A call that is not answered yet.
#[derive(Clone, Debug)]
struct Open {
    asked: Asked,
    talk: Option<usize>,
    method: &'static str,
    params: Value,
    /// Whether a cancellation may have met it.
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

    /// Plays all of it.
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

    /// Begins so many things and waits until all are done, or until so many lines were read.
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

    /// Waits until all that was asked for is answered, and nothing goes on by itself either.
    pub(crate) fn settle(&mut self) {
        let mut read = 0;
        while !self.open.is_empty() || self.promises.iter().any(Promise::runs) {
            read += self.read_on();
            assert!(read < MOST_LINES, "it does not come to rest");
        }
        for promise in &self.promises {
            promise.assert_explained();
        }
    }

    /// Reads a line, or learns that one was lost between daemon and agent; how many were read.
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

    /// Cancels every turn that may wait for what was lost. The daemon began that turn before the line was lost, so the
    /// cancellation meets it; where no turn runs, it does nothing.
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

    /// The same; its number.
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

    /// The conversations of which something is on its way that others have to wait for.
    pub(crate) fn busy(&self) -> BTreeSet<usize> {
        let changes = self.open.values().filter(|open| open.is_change());
        changes.filter_map(|open| open.talk).collect()
    }

    /// Those of them in which a turn runs.
    pub(crate) fn prompted(&self) -> BTreeSet<usize> {
        let turns = self.open.values().filter(|open| open.is_turn());
        turns.filter_map(|open| open.talk).collect()
    }

    /// Whether a call is open that may have the conversation go on by itself, or not any more.
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
        // A daemon that was started again may have gone on, and its agent asked, before anybody listened.
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
        let open = self.open.remove(&id).expect("each call is answered once");
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
                    "it does not wait: {result}"
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
                    // What was told as lost meanwhile was lost before.
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

    /// Keeps an answer that has to be given again to the same request id.
    /// Whether a cancellation of what this conversation does is not answered yet.
    pub(crate) fn is_being_cancelled(&self, talk: usize) -> bool {
        let mut open = self.open.values();
        open.any(|open| open.talk == Some(talk) && open.method == "conversation/cancel")
    }

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

    /// Kills the daemon; the next one must know everything that was told, and what nobody was told is asked
    /// again.
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

    /// A conversation goes on once no more faults are done.
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
        panic!("no prompt is answered any more: {view:#}");
    }
}

impl Open {
    /// Whether it may run without an end.
    fn is_turn(&self) -> bool {
        matches!(self.asked, Asked::Prompt { .. })
    }

    /// Whether the conversation is busy with it.
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
