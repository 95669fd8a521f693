//! The world around one conversation: a store, an agent and callers that a test controls.
//!
//! Every effect that is carried out adds one line to the log, except deadlines, which tests query by name. The calls of
//! clients are in `callers`, the actions of the store and the agent in `outside`, the text of the lines in `words`.

use std::collections::{BTreeMap, VecDeque};

use bridge_protocol::conversation::Conversation;
use bridge_protocol::id::{AgentName, ConversationId, UpstreamId};
use bridge_protocol::link::{LineageEntry, Link};
use bridge_protocol::turn::TurnResult;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;

use crate::agent::kinds::{self, AgentKind};
use crate::agent::policy::InterruptPolicy;
use crate::conversation::answer::Answer;
use crate::conversation::effect::{Deadline, Disposition, Effect, Ledger, PromptArrival, Work};
use crate::conversation::error::ConversationError;
use crate::conversation::state::{Model, Rules, view_of_record};
use crate::store::{Anchor, ConversationRecord, RequestRecord};

use super::words::{answer_line, entry, error_name, event_line, word, write_line};

/// How many prompts may wait.
pub(super) const QUEUE: usize = 2;
/// The time at which every world begins: 2026-11-20 22:00 UTC.
const START_SECOND: i64 = 1_795_212_000;

/// A change on its way to the disk.
pub(super) struct PendingWrite {
    pub(super) ledgers: Vec<Ledger>,
    /// The record as it is to stand; none for one of another conversation.
    pub(super) record: Option<ConversationRecord>,
}

/// What the disk holds.
#[derive(Default)]
pub(super) struct Disk {
    pub(super) record: Option<ConversationRecord>,
    pub(super) lineage: Vec<LineageEntry>,
    pub(super) upstream: Vec<UpstreamId>,
    pub(super) requests: BTreeMap<String, RequestRecord>,
}

/// How the lines begin that say what clients or the agent see.
const SEEN: [&str; 8] = [
    "event ",
    "update ",
    "answer ",
    "announce",
    "send ",
    "tell agent ",
    "close session",
    "retire agent",
];

pub(super) struct World {
    pub(super) model: Model<u32>,
    pub(super) disk: Disk,
    pub(super) answers: BTreeMap<u32, Result<Answer, ConversationError>>,
    pub(super) armed: Vec<Deadline>,
    /// Writes stay on their way until they are told to end.
    pub(super) hold_writes: bool,
    pub(super) writes: VecDeque<PendingWrite>,
    /// The job that was asked for last and has not been answered.
    pub(super) job: Option<u64>,
    /// The closing of a session that is under way.
    pub(super) closing: Option<u64>,
    /// What the end of the transcript is found to be before a prompt; none: it cannot be read.
    pub(super) anchor: Option<Anchor>,
    /// Whether the prompt that was cut short is found to be in the transcript then.
    pub(super) earlier: Option<PromptArrival>,
    /// Prompts wait for that until they are told.
    pub(super) hold_anchors: bool,
    /// A session that was opened and has neither been taken into use nor let go.
    pub(super) arrived: Option<String>,
    pub(super) ended: bool,
    pub(super) calls: u32,
    /// How often the time to go on came.
    pub(super) wakings: u32,
    pub(super) log: Vec<String>,
    /// Whether the words of errors are compared with the snapshot. Random calls also meet rare errors, which it may lack.
    pub(super) words_are_checked: bool,
    seconds: i64,
}

impl World {
    /// A conversation that has never been opened.
    pub(super) fn new() -> Self {
        Self::with_kind(&kinds::CLAUDE)
    }

    pub(super) fn with_kind(kind: &'static AgentKind) -> Self {
        let at = Timestamp::from_second(START_SECOND).unwrap();
        let id = ConversationId::from_bytes([7; 16]);
        let record = ConversationRecord::new(id, AgentName::new("claude"), "/home/u/project".to_owned(), at);
        let rules = Rules {
            prompt_queue: QUEUE,
            cancel_grace_ms: 5_000,
            accept_grace_ms: 2_000,
            idle_ms: 600_000,
            interrupts: InterruptPolicy::Ask,
            zone: || TimeZone::UTC,
        };
        Self {
            model: Model::new(record, kind, rules),
            disk: Disk::default(),
            answers: BTreeMap::new(),
            armed: Vec::new(),
            hold_writes: false,
            writes: VecDeque::new(),
            job: None,
            closing: None,
            anchor: None,
            earlier: None,
            hold_anchors: false,
            arrived: None,
            ended: false,
            calls: 0,
            wakings: 0,
            log: Vec::new(),
            words_are_checked: true,
            seconds: START_SECOND,
        }
    }

    /// A conversation whose first prompt was sent to the new session `s1`.
    pub(super) fn first_sent() -> Self {
        let mut world = Self::new();
        world.prompt("hello");
        world.opens("s1");
        world
    }

    /// A conversation with one finished turn on the open session `s1`.
    pub(super) fn live() -> Self {
        let mut world = Self::new();
        world.prompt("first");
        world.opens("s1");
        world.says_something();
        world.ends("end_turn");
        world.forget_log();
        world
    }

    /// The same with its session closed.
    pub(super) fn hibernating() -> Self {
        let mut world = Self::live();
        world.rests();
        world.forget_log();
        world
    }

    /// A conversation whose second turn, `t2`, runs.
    pub(super) fn running() -> Self {
        let mut world = Self::live();
        world.prompt("second");
        world.says_something();
        world.forget_log();
        world
    }

    /// What was done since the last call, in order.
    pub(super) fn log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    pub(super) fn forget_log(&mut self) {
        self.log.clear();
    }

    /// Fails the test unless clients and the agent saw exactly this since the last call, in this order. Writes, jobs and
    /// timers are left out: they are how the model gets there.
    #[track_caller]
    pub(super) fn expect(&mut self, lines: &[&str]) {
        assert_eq!(self.seen(), lines);
    }

    pub(super) fn seen(&mut self) -> Vec<String> {
        let mut seen = self.log();
        seen.retain(|line| SEEN.iter().any(|start| line.starts_with(start)));
        seen
    }

    /// Fails the test unless clients or the agent saw this, among others, since the last call.
    #[track_caller]
    pub(super) fn expect_among(&mut self, line: &str) {
        let seen = self.seen();
        assert!(seen.iter().any(|seen| seen == line), "{line} is not in {seen:#?}");
    }

    /// Fails the test unless this is what clients or the agent saw last since the last call.
    #[track_caller]
    pub(super) fn expect_last(&mut self, line: &str) {
        let seen = self.seen();
        assert_eq!(seen.last().map(String::as_str), Some(line), "{seen:#?}");
    }

    /// Whether clients or the agent saw something that begins so since the last call.
    pub(super) fn saw(&mut self, start: &str) -> bool {
        self.seen().iter().any(|line| line.starts_with(start))
    }

    /// The turn that answered a prompt.
    #[track_caller]
    pub(super) fn turn(&self, reply: u32) -> &TurnResult {
        match &self.answers[&reply] {
            Ok(Answer::Turn(turn)) => turn,
            other => panic!("no turn: {other:?}"),
        }
    }

    /// The conversation as clients see it.
    pub(super) fn view(&self) -> Conversation {
        self.model.view()
    }

    /// The conversation as clients of the next daemon would see it first.
    pub(super) fn on_disk(&self) -> Conversation {
        view_of_record(self.disk.record.as_ref().expect("nothing is on disk"))
    }

    /// The links of the chain as clients see them, oldest first.
    pub(super) fn links(&self) -> Vec<Link> {
        self.model.record.chain.links().to_vec()
    }

    /// The last link as clients see it.
    pub(super) fn head(&self) -> Link {
        self.links().pop().expect("no link")
    }

    pub(super) fn is_armed(&self, deadline: Deadline) -> bool {
        self.armed.contains(&deadline)
    }

    /// A session comes to lie where the next effects find it.
    pub(super) fn arrives(&mut self, id: &UpstreamId) {
        let earlier = self.arrived.replace(id.to_string());
        assert_eq!(earlier, None, "a session was lost, and stays open at the agent");
    }

    fn takes_arrived(&mut self) -> String {
        self.arrived.take().expect("no session has arrived")
    }

    /// The upstream ids of the chain, oldest first.
    pub(super) fn chain(&self) -> Vec<&str> {
        self.model
            .record
            .chain
            .links()
            .iter()
            .map(|link| link.upstream_id.as_str())
            .collect()
    }

    /// The lineage on disk, as `reason:id`.
    pub(super) fn lineage_on_disk(&self) -> Vec<String> {
        self.disk.lineage.iter().map(entry).collect()
    }

    /// What the clock shows.
    pub(super) fn now(&self) -> Timestamp {
        Timestamp::from_second(self.seconds).unwrap()
    }

    /// It gets as late as that.
    pub(super) fn passes_to(&mut self, time: &str) {
        let time: Timestamp = time.parse().unwrap();
        self.seconds = self.seconds.max(time.as_second());
    }

    /// Somebody corrects the clock.
    pub(super) fn clock_is_set_back(&mut self, seconds: i64) {
        self.seconds -= seconds;
    }

    /// A second passes.
    pub(super) fn tick(&mut self) -> Timestamp {
        self.seconds += 1;
        Timestamp::from_second(self.seconds).unwrap()
    }

    pub(super) fn apply(&mut self, change: impl FnOnce(&mut Model<u32>)) {
        let now = self.tick();
        let effects = self.model.apply(now, change);
        self.carry_out(effects);
        self.pump();
    }

    pub(super) fn pump(&mut self) {
        while !self.hold_writes && !self.writes.is_empty() {
            self.write_ends();
        }
    }

    pub(super) fn carry_out(&mut self, effects: Vec<Effect<u32>>) {
        for effect in effects {
            self.carry_out_one(effect);
        }
    }

    fn work(&mut self, job: u64, work: Work) -> String {
        if !matches!(work, Work::Close { .. }) {
            self.job = Some(job);
        }
        match work {
            Work::Open {
                min_fidelity,
                refused,
                is_automatic: by_itself,
                ..
            } => {
                assert_eq!(self.closing, None, "two sessions at once");
                let refused: Vec<String> = refused
                    .iter()
                    .map(|(id, via, _)| format!("{id} ({})", word(via)))
                    .collect();
                let below = if refused.is_empty() {
                    String::new()
                } else {
                    format!(" below {}", refused.join(","))
                };
                let by_itself = if by_itself { " by itself" } else { "" };
                format!("open {}{below}{by_itself}", word(&min_fidelity))
            }
            Work::Branch { from, busy, .. } => {
                format!("branch {from}{}", if busy { " while busy" } else { "" })
            }
            Work::Edit { at, .. } => {
                format!("edit {at}")
            }
            Work::FindUndoTarget { .. } => "look back".to_owned(),
            Work::Move(request) => {
                assert_eq!(self.closing, None, "its agent may still write");
                let to = request.destination.new_cwd(&self.model.record);
                format!("move files to {to}")
            }
            Work::UndoWork(_) => {
                self.arrived = None;
                "take back".to_owned()
            }
            Work::Repair(_) => {
                assert_eq!(self.closing, None, "its agent may still write");
                "repair".to_owned()
            }
            Work::CheckArrival(sent) => {
                let id = sent.upstream_id.as_ref().map_or("nothing", UpstreamId::as_str);
                format!("ascertain {id}")
            }
            Work::Close { deletion, by_force } => {
                assert_eq!(self.closing, None, "one is being closed already");
                self.closing = Some(job);
                let deletes = deletion == Some(bridge_protocol::conversation::TranscriptsOnDelete::Delete);
                let delete = if deletes { " and delete" } else { "" };
                let force = if by_force { " by force" } else { "" };
                format!("close session{delete}{force}")
            }
            Work::Configure(..) => "configure".to_owned(),
        }
    }

    fn carry_out_one(&mut self, effect: Effect<u32>) {
        let line = match effect {
            Effect::Write => {
                let write = self.model.writer.in_progress.as_ref().expect("nothing to write");
                let record = Some(write.record.clone()).filter(|record| record.id == self.model.id());
                let line = match record {
                    Some(_) => write_line(&write.parts),
                    None => "write new".to_owned(),
                };
                self.writes.push_back(PendingWrite {
                    ledgers: write.parts.iter().map(|part| part.ledger.clone()).collect(),
                    record,
                });
                line
            }
            Effect::Announce(conversation) => format!("announce {}", conversation.title),
            Effect::Emit(event) => event_line(&event),
            Effect::Answer(reply, result) => {
                if let Err(error) = &result
                    && self.words_are_checked
                {
                    crate::words::check("a call of a conversation", error_name(error), &error.to_string());
                }
                let line = answer_line(reply, &result);
                let earlier = self.answers.insert(reply, result);
                assert_eq!(earlier, None, "call {reply} was answered twice");
                line
            }
            Effect::Work(job, work) => self.work(job, work),
            Effect::Dispose(Disposition::Keep) => "keep".to_owned(),
            Effect::Dispose(disposition) => {
                self.arrived = None;
                format!("{disposition:?}").to_lowercase()
            }
            Effect::Anchor(turn_id) => {
                if !self.hold_anchors {
                    self.finds_end(&turn_id);
                }
                return;
            }
            Effect::GiveUpClimb => {
                self.job = None;
                "give the climb up".to_owned()
            }
            Effect::AbandonJob => {
                self.job = None;
                "abandon".to_owned()
            }
            Effect::Detach => "detach".to_owned(),
            Effect::Attach => {
                self.takes_arrived();
                "attach".to_owned()
            }
            Effect::KeepCopy => "keep the copy".to_owned(),
            Effect::HandOver(_, opened) => {
                assert_eq!(self.takes_arrived(), opened.upstream_id.as_str());
                format!("hand over {}", opened.upstream_id)
            }
            Effect::RetireAgent => "retire agent".to_owned(),
            Effect::SendPrompt(prompt, _) => format!("send {}", prompt.to_text()),
            Effect::SendCancel(_) => "send cancel".to_owned(),
            Effect::AnswerAgent(id, outcome, _) => {
                let outcome: Value = outcome.read().unwrap();
                let chosen = outcome.get("optionId").or(outcome.get("outcome")).unwrap();
                format!("tell agent {id} {}", chosen.as_str().unwrap())
            }
            Effect::Arm(deadline, milliseconds) => {
                self.armed.retain(|armed| *armed != deadline);
                self.armed.push(deadline);
                if milliseconds > 0 {
                    return;
                }
                format!("arm {deadline:?} 0")
            }
            Effect::Disarm(deadline) => {
                self.armed.retain(|armed| *armed != deadline);
                return;
            }
            Effect::End => {
                self.ended = true;
                "end".to_owned()
            }
        };
        self.log.push(line);
    }
}
