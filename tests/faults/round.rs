//! One round: a daemon whose agent is behind the proxy, and a client with some conversations.
//!
//! The client does several things at a time over one connection. Every call has to be answered; a turn in which nothing
//! is said for a while is cancelled, as a person would.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Answer, Client, Gone, Line};
use crate::effects::Effects;
use crate::home::{Daemon, Home};
use crate::kinds::{Fault, note, noted};
use crate::ledger::{Answered, Ledger, text};
use crate::proxy;
use crate::random::Random;

/// After how long a silence a turn is cancelled.
const QUIET: Duration = Duration::from_millis(400);

/// The same once no more faults are done: longer than the agent's start and the opening of a session may take.
const CALM_QUIET: Duration = Duration::from_secs(5);

/// How long any call may take: the longest is a climb of the whole ladder of which each rung is met by a fault.
const LONGEST_CALL: Duration = Duration::from_secs(60);

/// Calls that are open at a time.
const MOST_OPEN: usize = 3;

/// Prompts after the last fault, of which one has to be answered. An agent without output is given up after 2 s, in which
/// four sessions are waited for in vain; a turn of before may have to be cancelled.
const CALM_PROMPTS: usize = 7;

/// What may come back for anything here without anything being wrong: busy, agent unavailable, agent error, limited,
/// not resumable (as long as each way to resume meets a fault), conflict (nothing to branch from), question resolved.
const EXPECTED_ERRORS: [i64; 7] = [1003, 1006, 1007, 1009, 1011, 1012, 1013];

/// The deadlines are short, so that what is lost is given up soon.
const LIMITS: &str = "[limits]\ncancel_grace_ms = 150\nsession_open_ms = 500\nagent_start_ms = 2000\n";

/// See the module.
pub(crate) struct Round {
    pub(crate) home: Home,
    pub(crate) random: Random,
    /// Whether all is done to few conversations, so that their chains grow long.
    pub(crate) is_narrow: bool,
    pub(crate) client: Client,
    pub(crate) talks: Vec<Ledger>,
    pub(crate) effects: Effects,
    /// The prompts that were sent, by their marks.
    pub(crate) sent: BTreeMap<String, Sent>,
    pub(crate) figures: Figures,
    /// None once it has been stopped.
    daemon: Option<Daemon>,
    open: BTreeMap<u64, Open>,
    keys: u64,
    is_calm: bool,
    /// What was asked and told, for those who look into a failure.
    past: Vec<String>,
}

/// A prompt, and what came of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    /// Whether its turn takes effect when it ends well.
    pub(crate) has_effect: bool,
    pub(crate) has_ended_well: bool,
}

/// What was done and seen, to be told at the end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) faults: BTreeMap<Fault, usize>,
    pub(crate) conversations: usize,
    pub(crate) prompts: usize,
    pub(crate) ended_well: usize,
    pub(crate) failed_turns: usize,
    pub(crate) refused: BTreeMap<i64, usize>,
    pub(crate) silent: usize,
    pub(crate) rolls: usize,
    pub(crate) effects: usize,
    /// Turns that stood in a history in which they had to.
    pub(crate) kept: usize,
    /// Histories that told a gap.
    pub(crate) gaps: usize,
    /// Chains of full length.
    pub(crate) full_chains: usize,
}

impl Figures {
    pub(crate) fn add(&mut self, other: &Self) {
        for (fault, count) in &other.faults {
            *self.faults.entry(*fault).or_default() += count;
        }
        for (code, count) in &other.refused {
            *self.refused.entry(*code).or_default() += count;
        }
        self.conversations += other.conversations;
        self.prompts += other.prompts;
        self.ended_well += other.ended_well;
        self.failed_turns += other.failed_turns;
        self.silent += other.silent;
        self.rolls += other.rolls;
        self.effects += other.effects;
        self.kept += other.kept;
        self.gaps += other.gaps;
        self.full_chains += other.full_chains;
    }
}

/// What was asked for.
#[derive(Clone, Debug)]
pub(crate) enum Asked {
    New,
    Prompt {
        text: String,
        mark: String,
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
    since: Instant,
    heard: Instant,
    is_cancelled: bool,
}

impl Round {
    pub(crate) fn new(seed: u64) -> Self {
        let home = Home::new("");
        home.configure(&format!("{LIMITS}{}", proxy::configured(home.path(), seed)));
        let effects = Effects::below(&home.path().join("project"));
        let daemon = home.start();
        let client = Client::connect(&home.socket()).unwrap();
        let mut random = Random::new(seed);
        Self {
            is_narrow: random.chance(25),
            random,
            client,
            talks: Vec::new(),
            effects,
            sent: BTreeMap::new(),
            figures: Figures::default(),
            daemon: Some(daemon),
            open: BTreeMap::new(),
            keys: 0,
            is_calm: false,
            past: Vec::new(),
            home,
        }
    }

    /// Plays all of it.
    pub(crate) fn play(&mut self) -> Figures {
        let lives = 1 + self.random.below(3);
        for life in 1..=lives {
            let steps = (10 + self.random.below(30)) * if self.is_narrow { 2 } else { 1 };
            let lines = (life < lives).then(|| self.random.below(600));
            self.live(steps, lines);
            if life < lives {
                self.kill_and_start();
            }
        }
        proxy::calm(self.home.path());
        self.is_calm = true;
        for talk in 0..self.talks.len() {
            self.must_be_answered(talk);
        }
        self.verify();
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
            let lets_wait = self.is_narrow && !self.busy().is_empty() && !self.random.chance(5);
            if begun < steps && self.open.len() < MOST_OPEN && !lets_wait {
                self.step();
                begun += 1;
            } else if self.open.is_empty() {
                return;
            } else {
                read += self.read_on();
            }
        }
    }

    /// Waits until all that was asked for is answered.
    fn settle(&mut self) {
        while !self.open.is_empty() {
            self.read_on();
        }
    }

    /// Reads a line, unless none comes before something has to be done; how many were read.
    fn read_on(&mut self) -> usize {
        let now = Instant::now();
        for open in self.open.values() {
            let waited = now - open.since;
            assert!(waited < LONGEST_CALL, "nobody answers for {waited:?}: {open:?}");
        }
        let quiet = if self.is_calm { CALM_QUIET } else { QUIET };
        let silent: Vec<u64> = self
            .open
            .iter()
            .filter(|(_, open)| open.is_turn() && !open.is_cancelled && now - open.heard >= quiet)
            .map(|(id, _)| *id)
            .collect();
        for id in silent {
            self.figures.silent += 1;
            self.cancel(id);
        }
        let turns = self
            .open
            .values()
            .filter(|open| open.is_turn() && !open.is_cancelled);
        let due = turns.map(|open| open.heard + quiet).min();
        let limit = due.map_or(LONGEST_CALL, |due| due.saturating_duration_since(Instant::now()));
        match self.client.read_within(limit) {
            Ok(Some(Line::Event(event))) => {
                if event["event"]["type"] != "update" {
                    self.past.push(event.to_string());
                }
                self.hear(&event);
            }
            Ok(Some(Line::Answer(id, answer))) => {
                self.past.push(format!("{id} is answered: {answer:?}"));
                self.answered(id, answer);
            }
            Ok(None) => return 0,
            Err(Gone) => panic!("the daemon is gone"),
        }
        1
    }

    /// Cancels the turn of this call.
    fn cancel(&mut self, id: u64) {
        let open = self.open.get_mut(&id).unwrap();
        open.is_cancelled = true;
        let talk = open.talk.unwrap();
        self.ask(Asked::Cancel, Some(talk), "conversation/cancel", json!({}));
    }

    /// Sends a call about a conversation.
    pub(crate) fn ask(&mut self, asked: Asked, talk: Option<usize>, method: &'static str, mut params: Value) {
        if let Some(talk) = talk {
            params["conversationId"] = json!(self.talks[talk].id);
        }
        let Ok(id) = self.client.send(method, &params) else {
            panic!("the daemon is gone");
        };
        self.past.push(format!("{id} is asked: {method} {params}"));
        let now = Instant::now();
        let open = Open {
            asked,
            talk,
            method,
            params,
            since: now,
            heard: now,
            is_cancelled: false,
        };
        self.open.insert(id, open);
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

    fn hear(&mut self, envelope: &Value) {
        let id = &envelope["conversationId"];
        let event = &envelope["event"];
        let Some(talk) = self.talks.iter().position(|talk| *id == talk.id.as_str()) else {
            return;
        };
        self.talks[talk].hear(event);
        self.figures.rolls += usize::from(event["type"] == "rolled");
        let now = Instant::now();
        for open in self.open.values_mut().filter(|open| open.talk == Some(talk)) {
            open.heard = now;
        }
        if event["type"] == "interruptRaised" && self.random.chance(80) {
            let question = text(&event["interrupt"], "id");
            let choice = self.random.pick(&["allow_once", "allow_once", "reject_once"]);
            let outcome = json!({"outcome": "selected", "optionId": choice});
            let params = json!({"interruptId": question, "outcome": outcome});
            self.ask(
                Asked::Respond(question),
                Some(talk),
                "conversation/respond",
                params,
            );
        }
    }

    fn answered(&mut self, id: u64, answer: Answer) {
        let open = self.open.remove(&id).expect("each call is answered once");
        if let Err(error) = &answer {
            let code = error["code"].as_i64().unwrap();
            assert!(EXPECTED_ERRORS.contains(&code), "{open:?}: {error}");
            *self.figures.refused.entry(code).or_default() += 1;
            let foreign = open
                .talk
                .filter(|talk| code == 1003 && !self.busy().contains(talk));
            if let Some(talk) = foreign.filter(|_| open.is_turn()) {
                // A turn that the answer to an orphaned question has begun: it may be without an end as any other.
                self.ask(Asked::Cancel, Some(talk), "conversation/cancel", json!({}));
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
            Asked::New | Asked::Close | Asked::Cancel | Asked::Subscribe | Asked::Again(_) => {}
        }
    }

    fn adopt(&mut self, ledger: Ledger) {
        self.talks.push(ledger);
        let last = self.talks.len() - 1;
        self.ask(Asked::Subscribe, Some(last), "conversation/subscribe", json!({}));
    }

    /// Keeps an answer that has to be given again to the same request id.
    fn keep(&mut self, talk: usize, open: &Open, result: &Value) {
        let is_told_again = matches!(open.asked, Asked::Prompt { .. } | Asked::Fork { .. });
        if open.params["requestId"].is_string() && is_told_again {
            self.talks[talk].answered.push(Answered {
                method: open.method,
                params: open.params.clone(),
                result: result.clone(),
            });
        }
    }

    /// Kills the daemon; the next one must know everything that was told, and what nobody was told is asked again.
    fn kill_and_start(&mut self) {
        note(self.home.path(), Fault::KillDaemon);
        self.daemon.take().unwrap().kill();
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
                self.ask(open.asked, open.talk, open.method, open.params);
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
                self.past.join("\n"),
                self.home.last_words(),
                self.open
            );
        }
    }
}
