//! Random histories of a conversation: what callers, agent, disk and clock may do, in any order, and the rules that
//! hold after each step. Rules for whole histories are in `properties`.

use std::collections::BTreeMap;

use bridge_protocol::conversation::{ContinueAt, OnBusy};
use bridge_protocol::id::TurnId;
use bridge_protocol::link::{Fidelity, RollCause};
use bridge_protocol::method::Cancel;
use jiff::Timestamp;
use serde_json::json;

use super::outside::{agent_error, branch, edited, not_resumable, open_branch};
use super::steps::{Outcome, Step};
use super::words::word;
use super::world::World;
use crate::chain::CHAIN_LIMIT;
use crate::conversation::effect::{Call, Deadline, PromptArrival};
use crate::conversation::state::{Model, OperationKind, Stage, TurnPhase};
use crate::store::Anchor;

/// A world with what the random steps need to know of it, and what was seen of each turn.
pub(super) struct Run {
    pub(super) world: World,
    sessions: u32,
    questions: u32,
    /// A prompt is at the agent.
    prompt_is_out: bool,
    attached: bool,
    pub(super) seen: BTreeMap<String, Seen>,
    /// Which turn each key started.
    keys: BTreeMap<String, String>,
    /// The key of each turn whose prompt was sent.
    sent_keys: BTreeMap<String, String>,
    state_told: String,
    /// The revision and when it was made.
    changed: (u64, Timestamp),
}

/// What was told of one turn.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) accepted: bool,
    pub(super) ended: bool,
}

impl Run {
    pub(super) fn new() -> Self {
        let mut world = World::new();
        world.words_are_checked = false;
        world.hold_writes = true;
        world.anchor = Some(Anchor::default());
        Self {
            world,
            sessions: 0,
            questions: 0,
            prompt_is_out: false,
            attached: false,
            seen: BTreeMap::new(),
            keys: BTreeMap::new(),
            sent_keys: BTreeMap::new(),
            state_told: "idle".to_owned(),
            changed: (0, Timestamp::UNIX_EPOCH),
        }
    }

    /// Takes all steps and settles.
    pub(super) fn settled(steps: &[Step]) -> Self {
        let mut run = Self::new();
        for step in steps {
            run.take(step);
        }
        run.settle();
        run
    }

    pub(super) fn take(&mut self, step: &Step) {
        if self.world.ended {
            // Nobody takes an input any more; later calls are answered by who finds the record.
            return;
        }
        self.carry_out(step);
        self.look();
    }

    fn carry_out(&mut self, step: &Step) {
        let world = &mut self.world;
        match *step {
            Step::Prompt {
                queue,
                min_fidelity,
                key,
            } => {
                let on_busy = if queue { OnBusy::Queue } else { OnBusy::Fail };
                let key = key.map(|key| format!("k{key}"));
                world.prompt_with("hello", on_busy, min_fidelity, key.as_deref());
            }
            Step::PromptAndWait => {
                world.prompt_and_wait("hello");
            }
            Step::GoOn { cancel: true } => {
                world.do_not_continue();
            }
            Step::GoOn { cancel: false } => {
                world.continue_at(ContinueAt::Time(Timestamp::UNIX_EPOCH), Some("go on"));
            }
            Step::FallsDue => {
                let continuation = world.model.record.continuation.as_ref();
                if let Some(at) = continuation.map(|continuation| continuation.at.to_string()) {
                    world.passes_to(&at);
                }
                world.falls_due();
            }
            Step::ClockIsSetBack => world.clock_is_set_back(43_200),
            Step::Cancel { turn, queued } => {
                let turn_id = turn.map(|turn| format!("t{turn}").into());
                let call = Cancel {
                    turn_id,
                    queued,
                    ..Cancel::default()
                };
                world.call(Call::Cancel(call, None), None);
            }
            Step::Resume(min_fidelity) => {
                world.resume(min_fidelity);
            }
            Step::SetTitle => {
                world.set_title("A title");
            }
            Step::SetMode => {
                world.set_mode("plan");
            }
            Step::Fork { in_place } => {
                world.fork(in_place);
            }
            Step::Edit(min_fidelity) => {
                world.edit_with("cp.claude.s1.r1", min_fidelity, None);
            }
            Step::Undo => {
                world.undo();
            }
            Step::Respond {
                question,
                allow: true,
            } => {
                world.allow(&format!("q{question}"));
            }
            Step::Respond {
                question,
                allow: false,
            } => {
                world.deny(&format!("q{question}"));
            }
            Step::Close => {
                world.close();
            }
            Step::Move { key } => {
                let key = key.map(|key| format!("/m{key}"));
                world.move_to(key.as_deref().unwrap_or("/new"), key.as_deref());
            }
            Step::Repair { key } => {
                let key = key.map(|key| format!("m{key}"));
                world.repair(key.as_deref());
            }
            Step::Reset => {
                world.reset();
            }
            Step::Delete => {
                world.delete();
            }
            Step::JobEnds { well, way } => self.end_job(well, way),
            Step::Closes if world.closing.is_some() => world.closes(),
            Step::WriteEnds { well } => self.end_write(well),
            Step::AgentSpeaks if self.attached => world.says_something(),
            Step::AgentReports if self.attached => {
                world.updates(&json!({"sessionUpdate": "usage_update", "used": 1}));
            }
            Step::AgentAnswers(outcome) if self.prompt_is_out => {
                self.prompt_is_out = false;
                match outcome {
                    Outcome::Done => world.ends("end_turn"),
                    Outcome::Cancelled => world.ends("cancelled"),
                    Outcome::Limit => {
                        world.refuses(json!({"code": -32603, "data": {"errorKind": "rate_limit"}}));
                    }
                    Outcome::SignedOut => world.refuses(json!({"code": -32000, "message": "sign in"})),
                    Outcome::Unknown => world.does_not_know_the_session(),
                    // That is known at once or never.
                    Outcome::Unsent { is_ending } if world.is_sending() => world.does_not_send(is_ending),
                    Outcome::Unsent { .. } => world.ends("end_turn"),
                    Outcome::Died => {
                        world.refuses(json!({"code": -32603, "data": {"errorKind": "transport_lost"}}));
                    }
                }
            }
            Step::AgentAsks if self.attached => {
                self.questions += 1;
                world.asks(&format!("q{}", self.questions));
            }
            Step::AgentWithdraws(question) if self.attached => world.withdraws(&format!("q{question}")),
            Step::AgentDies if self.attached => {
                self.prompt_is_out = false;
                world.dies();
            }
            Step::AgentRetires if self.attached => world.apply(Model::reopen_later),
            Step::AgentRolls if self.attached => {
                self.sessions += 1;
                world.rolls_silently(&format!("s{}", self.sessions));
            }
            Step::Elapses(deadline) if world.is_armed(deadline) => world.elapses(deadline),
            Step::Stop => world.stop(),
            _ => {}
        }
    }

    fn end_write(&mut self, well: bool) {
        if self.world.writes.is_empty() {
            return;
        }
        if well {
            self.world.write_ends();
        } else {
            self.world.write_fails();
        }
    }

    fn end_job(&mut self, well: bool, way: u8) {
        let world = &mut self.world;
        if world.job.is_none() {
            return;
        }
        let op = world.model.operation.as_ref();
        if op.is_some_and(|op| matches!(op.stage, Stage::UndoingWork(_))) {
            world.taken_back();
            return;
        }
        match op.map(|op| &op.kind) {
            Some(OperationKind::Open { .. }) if !well && way < 2 => world.climb_fails(not_resumable()),
            Some(OperationKind::Open { .. }) if !well => world.climb_fails(agent_error()),
            Some(OperationKind::Open { min_fidelity }) => {
                let least = *min_fidelity;
                self.sessions += 1;
                let id = format!("s{}", self.sessions);
                match (world.model.record.chain.head(), way) {
                    (None, _) => world.opens(&id),
                    (Some(_), 1) => world.copies(&id, RollCause::Forgotten),
                    (Some(_), 2) if least <= Fidelity::Text => world.retells(&id, "So far:"),
                    (Some(_), 3) if least == Fidelity::None => world.starts_anew(&id),
                    (Some(_), _) => world.reopens(),
                }
            }
            Some(OperationKind::Branch(_)) if well => {
                self.sessions += 1;
                let id = format!("s{}", self.sessions);
                world.branched(Ok(if way < 2 { branch(&id) } else { open_branch(&id) }));
            }
            Some(OperationKind::Branch(_)) => world.branched(Err(agent_error())),
            Some(OperationKind::Edit(_)) if well => {
                self.sessions += 1;
                world.edit_is_made(Ok(edited(&format!("s{}", self.sessions), "s1", 1)));
            }
            Some(OperationKind::Edit(_)) => world.edit_is_made(Err(agent_error())),
            Some(OperationKind::Undo(_)) => world.looks_back(),
            Some(OperationKind::Configure { .. }) if well => world.configured(Ok(())),
            Some(OperationKind::Configure { .. }) => world.configured(Err(agent_error())),
            Some(OperationKind::Move { .. }) if well => world.moved(Ok(1)),
            Some(OperationKind::Move { .. }) => world.moved(Err(agent_error())),
            Some(OperationKind::Repair) if well && way > 0 => {
                self.sessions += 1;
                world.repaired(Ok(Some(&format!("s{}", self.sessions))));
            }
            Some(OperationKind::Repair) if well => world.repaired(Ok(None)),
            Some(OperationKind::Repair) => world.repaired(Err(agent_error())),
            Some(OperationKind::CheckArrival(_)) => world.ascertains(match way {
                0 => PromptArrival::Absent,
                1 => PromptArrival::Present,
                _ => PromptArrival::Unknown,
            }),
            Some(OperationKind::Reset | OperationKind::Delete { .. }) | None => {}
        }
    }

    /// Reads what was done and checks the rules that hold after each step.
    fn look(&mut self) {
        for line in self.world.log() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["attach"] => self.attached = true,
                ["detach"] | ["close", "session", ..] => {
                    self.attached = false;
                    self.prompt_is_out = false;
                }
                ["send", "cancel"] => assert!(self.prompt_is_out, "a cancel for nothing"),
                ["send", ..] => {
                    let sent = self.world.model.turn.as_ref().expect("a prompt of no turn");
                    let turn = sent.request.turn_id.to_string();
                    if let Some(resumed) = &sent.resumed {
                        assert!(
                            resumed.fidelity >= sent.request.min_fidelity,
                            "{turn} was sent to less than was asked for"
                        );
                    }
                    assert!(self.attached, "a prompt to no session");
                    let Some(live) = &self.world.model.session else {
                        panic!("{turn} was sent to no session");
                    };
                    let branch = sent.edit.as_ref().and_then(|edit| edit.unaccepted());
                    if let Some(branch) = branch {
                        assert_eq!(
                            live.upstream_id, branch.link.upstream_id,
                            "{turn} left its branch"
                        );
                    }
                    let disk = self.world.disk.record.as_ref();
                    let recorded = disk.and_then(|record| record.turn.as_ref());
                    let recorded = recorded.expect("a prompt was sent before it was on disk");
                    assert_eq!(
                        (&recorded.turn_id, recorded.upstream_id.as_ref()),
                        (&sent.request.turn_id, Some(&live.upstream_id)),
                        "a prompt was sent that is not the one on disk, or elsewhere"
                    );
                    if let Some(request) = &sent.request.caller.key {
                        self.sent_keys
                            .insert(turn.clone(), request.id.as_str().to_owned());
                    }
                    assert!(!self.prompt_is_out, "two prompts at once");
                    self.prompt_is_out = true;
                }
                ["event", "promptAccepted", turn, ..] => {
                    let running = self
                        .seen
                        .values()
                        .filter(|seen| seen.accepted && !seen.ended)
                        .count();
                    assert_eq!(running, 0, "two turns at once");
                    // By what was sent: the model may have begun the next turn by now.
                    if let Some(key) = self.sent_keys.get(turn) {
                        let earlier = self.keys.insert(key.clone(), turn.to_owned());
                        assert_eq!(earlier, None, "{turn} is a prompt that was sent before");
                    }
                    let seen = self.seen.entry(turn.to_owned()).or_default();
                    assert!(
                        !std::mem::replace(&mut seen.accepted, true),
                        "{turn} was accepted twice"
                    );
                }
                ["event", "turnEnded", turn, ..] => {
                    let seen = self.seen.entry(turn.to_owned()).or_default();
                    assert!(seen.accepted, "{turn} ended and was never accepted");
                    assert!(!std::mem::replace(&mut seen.ended, true), "{turn} ended twice");
                }
                ["event", "state", state] => {
                    assert_ne!(self.state_told, state, "a state that is none of news");
                    self.state_told = state.to_owned();
                }
                ["answer", _, "turn", turn, ..] => {
                    let ended = self.seen.get(turn).is_none_or(|seen| seen.ended == seen.accepted);
                    assert!(ended, "{turn} was answered before its end was told");
                }
                _ => {}
            }
        }
        let model = &self.world.model;
        let state = serde_json::to_value(model.state()).unwrap();
        assert_eq!(
            state,
            json!(self.state_told),
            "the state is not the one that was told"
        );
        // A change that could not be written is taken back whole.
        let (revision, updated_at) = (model.record.revision, model.record.updated_at);
        assert!(
            revision <= self.changed.0 || updated_at >= self.changed.1,
            "it changed before it did so last"
        );
        self.changed = (revision, updated_at);
        let chain = &model.record.chain;
        assert!(chain.len() <= CHAIN_LIMIT);
        if let Some(head) = model.view().head {
            assert!(
                self.world.disk.upstream.contains(&head),
                "{head} was told before it was on disk"
            );
        }
        let phase = model.turn.as_ref().map(|turn| turn.phase);
        self.look_at_line();
        assert_eq!(
            model.record.turn.is_some(),
            match phase {
                Some(TurnPhase::Recording | TurnPhase::Sent | TurnPhase::Accepted) => true,
                // One that was announced and then refused has to be given an end, whatever becomes of the daemon.
                Some(TurnPhase::Waiting) => model.turn.as_ref().is_some_and(|turn| turn.announced),
                Some(TurnPhase::Ending) | None => false,
            }
        );
        let op = model.operation.as_ref();
        let asks_transcript = matches!(op.map(|op| &op.kind), Some(OperationKind::CheckArrival(Some(_))));
        if matches!(phase, Some(TurnPhase::Sent | TurnPhase::Accepted)) {
            assert!(
                self.prompt_is_out || asks_transcript || self.world.is_armed(Deadline::Cancel),
                "nobody will answer this turn"
            );
        }
        assert_eq!(
            self.attached,
            model.session.is_some(),
            "session and lines are not one"
        );
        let arrives = op.is_some_and(|op| matches!(op.stage, Stage::Writing));
        assert!(
            arrives || self.world.arrived.is_none(),
            "a session that arrived is forgotten"
        );
        let fails = self.world.is_armed(Deadline::Rewrite);
        let writes = !self.world.writes.is_empty();
        assert!(
            fails || writes || model.writer.is_at_rest(),
            "nobody takes this to disk"
        );
    }

    /// Who waits has a place on the record, the running turn until it stands there itself, and what is shown is on disk.
    fn look_at_line(&self) {
        let model = &self.world.model;
        // One of them may have begun and be held again, since it did not get further.
        assert!(model.record.waiting.len() <= model.rules.prompt_queue + 1);
        let listed = |place: Option<u64>| place.and_then(|place| model.record.waiting.get(&place));
        for waiting in &model.queue {
            let listed = listed(waiting.queue_position).map(|listed| &listed.turn_id);
            assert_eq!(listed, Some(&waiting.turn_id), "it has no place, or another's");
        }
        if let Some(turn) = model
            .turn
            .as_ref()
            .filter(|turn| turn.request.queue_position.is_some())
        {
            let stands = model.record.turn.is_some() || turn.phase == TurnPhase::Ending;
            assert_eq!(
                listed(turn.request.queue_position).is_none(),
                stands,
                "{}",
                turn.request.turn_id
            );
        }
        for shown in model.view().queue {
            assert!(
                self.is_on_disk(&shown.turn_id),
                "{} is shown too early",
                shown.turn_id
            );
        }
    }

    /// Whether a prompt waits on disk, or is the turn there.
    fn is_on_disk(&self, turn_id: &TurnId) -> bool {
        self.world.disk.record.as_ref().is_some_and(|record| {
            let runs = record.turn.as_ref().is_some_and(|turn| turn.turn_id == *turn_id);
            runs || record.waiting.values().any(|waiting| waiting.turn_id == *turn_id)
        })
    }

    /// The daemon is killed and started again.
    pub(super) fn is_killed(&mut self) {
        self.world.is_killed();
        (self.prompt_is_out, self.attached) = (false, false);
        for seen in self.seen.values_mut() {
            seen.ended = seen.accepted;
        }
        let model = &self.world.model;
        self.state_told = word(&model.state());
        self.changed = (model.record.revision, model.record.updated_at);
    }

    /// Lets everything that is under way come to its end; the disk is well again.
    pub(super) fn settle(&mut self) {
        for _ in 0..10_000 {
            let step = if self.world.ended {
                return;
            } else if !self.world.writes.is_empty() {
                Step::WriteEnds { well: true }
            } else if self.world.job.is_some() {
                Step::JobEnds { well: true, way: 0 }
            } else if self.world.closing.is_some() {
                Step::Closes
            } else if self.prompt_is_out {
                Step::AgentAnswers(Outcome::Done)
            } else if self.world.is_armed(Deadline::Rewrite) {
                Step::Elapses(Deadline::Rewrite)
            } else {
                return;
            };
            self.take(&step);
        }
        panic!("it never comes to rest");
    }
}
