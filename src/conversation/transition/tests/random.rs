//! Random histories: whatever callers, agent, disk and clock do, and in whichever order, these rules hold.

use std::collections::{BTreeMap, BTreeSet};

use bridge_protocol::conversation::{OnBusy, TranscriptsOnDelete};
use bridge_protocol::link::{Fidelity, RollCause};
use bridge_protocol::raw::RawJson;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;

use super::outside::{agent_error, branch, not_resumable};
use super::world::World;
use crate::chain::CHAIN_LIMIT;
use crate::conversation::answer::Answer;
use crate::conversation::effect::{Call, Deadline, Input};
use crate::conversation::error::ConversationError;
use crate::conversation::state::{JobKind, TurnPhase};

/// How many steps a history has.
const STEPS: usize = 40;

/// One thing that happens. What cannot happen at the moment (the answer to a prompt that was not sent, say) is left out.
#[derive(Clone, Debug)]
enum Step {
    Prompt {
        queue: bool,
        min_fidelity: Fidelity,
        key: Option<u8>,
    },
    Cancel {
        turn: Option<u8>,
        queued: bool,
    },
    Resume(Fidelity),
    SetTitle,
    SetMode,
    Fork {
        in_place: bool,
    },
    Respond {
        question: u8,
        allow: bool,
    },
    Close,
    Reset,
    Delete,
    /// The pending job ends; how depends on what it is.
    JobEnds {
        well: bool,
        lasting: bool,
    },
    WriteEnds {
        well: bool,
    },
    AgentSpeaks,
    AgentReports,
    AgentAnswers(Outcome),
    AgentAsks,
    AgentWithdraws(u8),
    AgentDies,
    AgentRolls,
    Elapses(Deadline),
    Stop,
}

#[derive(Clone, Copy, Debug)]
enum Outcome {
    Done,
    Cancelled,
    Limit,
    Unknown,
    Died,
}

fn fidelity() -> impl Strategy<Value = Fidelity> {
    prop_oneof![
        Just(Fidelity::None),
        Just(Fidelity::Text),
        Just(Fidelity::Partial),
        Just(Fidelity::Full)
    ]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        4 => Just(Outcome::Done),
        1 => Just(Outcome::Cancelled),
        1 => Just(Outcome::Limit),
        1 => Just(Outcome::Unknown),
        1 => Just(Outcome::Died),
    ]
}

fn deadline() -> impl Strategy<Value = Deadline> {
    prop_oneof![
        Just(Deadline::Accept),
        Just(Deadline::Cancel),
        Just(Deadline::Idle)
    ]
}

/// A step; the disk fails only when `disk_fails` is set.
fn step(disk_fails: bool) -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any::<bool>(), fidelity(), proptest::option::weighted(0.3, 0..3_u8))
            .prop_map(|(queue, min_fidelity, key)| Step::Prompt { queue, min_fidelity, key }),
        3 => (proptest::option::weighted(0.3, 0..6_u8), any::<bool>())
            .prop_map(|(turn, queued)| Step::Cancel { turn, queued }),
        2 => fidelity().prop_map(Step::Resume),
        1 => Just(Step::SetTitle),
        1 => Just(Step::SetMode),
        2 => any::<bool>().prop_map(|in_place| Step::Fork { in_place }),
        2 => (0..4_u8, any::<bool>()).prop_map(|(question, allow)| Step::Respond { question, allow }),
        1 => Just(Step::Close),
        1 => Just(Step::Reset),
        8 => (prop::bool::weighted(0.8), any::<bool>()).prop_map(|(well, lasting)| Step::JobEnds { well, lasting }),
        // Shrinking would let a disk fail that never does, so the weight alone is not enough.
        12 => prop::bool::weighted(0.8).prop_map(move |well| Step::WriteEnds { well: well || !disk_fails }),
        3 => Just(Step::AgentSpeaks),
        1 => Just(Step::AgentReports),
        6 => outcome().prop_map(Step::AgentAnswers),
        2 => Just(Step::AgentAsks),
        1 => (0..4_u8).prop_map(Step::AgentWithdraws),
        1 => Just(Step::AgentDies),
        1 => Just(Step::AgentRolls),
        2 => deadline().prop_map(Step::Elapses),
    ]
}

fn history(disk_fails: bool) -> impl Strategy<Value = Vec<Step>> {
    vec(step(disk_fails), 0..STEPS)
}

/// A world with what the random steps need to know of it, and what was seen of each turn.
struct Run {
    world: World,
    sessions: u32,
    questions: u32,
    /// A prompt is at the agent.
    prompt_is_out: bool,
    attached: bool,
    seen: BTreeMap<String, Seen>,
    recorded: BTreeSet<String>,
    state_told: String,
}

/// What was told of one turn.
#[derive(Default)]
struct Seen {
    accepted: bool,
    ended: bool,
}

impl Run {
    fn new() -> Self {
        let mut world = World::new();
        world.hold_writes = true;
        Self {
            world,
            sessions: 0,
            questions: 0,
            prompt_is_out: false,
            attached: false,
            seen: BTreeMap::new(),
            recorded: BTreeSet::new(),
            state_told: "idle".to_owned(),
        }
    }

    fn take(&mut self, step: &Step) {
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
            Step::Cancel { turn, queued } => {
                let turn_id = turn.map(|turn| format!("t{turn}").into());
                world.call(Call::Cancel { turn_id, queued }, None);
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
            Step::Reset => {
                world.reset();
            }
            Step::Delete => {
                world.call(
                    Call::Delete {
                        transcripts: TranscriptsOnDelete::Keep,
                    },
                    None,
                );
            }
            Step::JobEnds { well, lasting } => self.end_job(well, lasting),
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
                    Outcome::Unknown => world.does_not_know_the_session(),
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
        let recorded = self
            .world
            .model
            .record
            .turn
            .as_ref()
            .map(|turn| turn.turn_id.to_string());
        if well {
            self.recorded.extend(recorded);
            self.world.write_ends();
        } else {
            self.world.write_fails();
        }
    }

    fn end_job(&mut self, well: bool, lasting: bool) {
        let world = &mut self.world;
        if world.job.is_none() {
            return;
        }
        let error = || if lasting { not_resumable() } else { agent_error() };
        match world.model.job.as_ref().map(|job| &job.kind) {
            Some(JobKind::Opening) if !well => world.climb_fails(error()),
            Some(JobKind::Opening) => {
                self.sessions += 1;
                let id = format!("s{}", self.sessions);
                match world.model.record.chain.head() {
                    None => world.opens(&id),
                    Some(_) if lasting => world.copies(&id, RollCause::Forgotten),
                    Some(_) => world.reopens(),
                }
            }
            Some(JobKind::Branching(_)) if well => {
                self.sessions += 1;
                let id = format!("s{}", self.sessions);
                world.branched(Ok(branch(&id)));
            }
            Some(JobKind::Branching(_)) => world.branched(Err(agent_error())),
            Some(JobKind::Closing { .. }) => world.closes(),
            Some(JobKind::Configuring { .. }) if well => world.configured(Ok(())),
            Some(JobKind::Configuring { .. }) => world.configured(Err(agent_error())),
            Some(JobKind::Recording) | None => {}
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
                    let turn = self
                        .world
                        .model
                        .turn
                        .as_ref()
                        .expect("a prompt of no turn")
                        .asked
                        .turn_id
                        .to_string();
                    assert!(self.attached, "a prompt to no session");
                    assert!(
                        self.recorded.contains(&turn),
                        "{turn} was sent before it was on disk"
                    );
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
        let chain = &model.record.chain;
        assert!(chain.len() <= CHAIN_LIMIT);
        assert_eq!(
            model.view().head.as_ref(),
            chain.links().last().map(|link| &link.upstream_id)
        );
        assert!(model.queue.len() <= model.rules.prompt_queue);
        let phase = model.turn.as_ref().map(|turn| turn.phase);
        assert_eq!(
            model.record.turn.is_some(),
            match phase {
                Some(TurnPhase::Recording | TurnPhase::Sent | TurnPhase::Accepted) => true,
                Some(TurnPhase::Waiting | TurnPhase::Ending) | None => false,
            }
        );
        if matches!(phase, Some(TurnPhase::Sent | TurnPhase::Accepted)) {
            assert!(
                self.prompt_is_out || model.job.is_some(),
                "nobody will answer this turn"
            );
        }
    }

    /// Lets everything that is under way come to its end.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            let step = if self.world.ended {
                return;
            } else if !self.world.writes.is_empty() {
                Step::WriteEnds { well: true }
            } else if self.world.job.is_some() {
                Step::JobEnds {
                    well: true,
                    lasting: false,
                }
            } else if self.prompt_is_out {
                Step::AgentAnswers(Outcome::Done)
            } else {
                return;
            };
            self.take(&step);
        }
        panic!("it never comes to rest");
    }
}

/// Fails unless every call was answered and every accepted turn has ended.
fn everyone_has_heard(run: &Run) {
    for call in 1..=run.world.calls {
        assert!(
            run.world.answers.contains_key(&call),
            "call {call} was never answered"
        );
    }
    for (turn, seen) in &run.seen {
        assert_eq!(seen.accepted, seen.ended, "{turn} never ended");
    }
    for answer in run.world.answers.values() {
        if let Ok(Answer::Responded(Some(turn))) = answer {
            assert!(
                run.seen.get(turn.as_str()).is_none_or(|seen| seen.ended),
                "{turn} was promised"
            );
        }
    }
}

proptest! {
    // A history that fails is told by the failure itself; no file of it is left behind.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rules_hold_after_each_step_and_everyone_hears_in_the_end(steps in history(false)) {
        let mut run = Run::new();
        for step in &steps {
            run.take(step);
        }
        run.settle();
        everyone_has_heard(&run);
    }

    #[test]
    fn rules_hold_on_a_failing_disk_too(steps in history(true)) {
        let mut run = Run::new();
        for step in &steps {
            run.take(step);
        }
        run.settle();
        everyone_has_heard(&run);
    }

    #[test]
    fn no_lineage_entry_is_lost_or_doubled(steps in history(true)) {
        let mut run = Run::new();
        for step in &steps {
            run.take(step);
        }
        run.settle();
        let model = &run.world.model;
        let mut numbers: Vec<u64> =
            run.world.disk.lineage.iter().chain(&model.unsaved).map(|entry| entry.seq).collect();
        numbers.sort_unstable();
        let expected: Vec<u64> = (1..=model.record.chain.last_lineage_seq()).collect();
        prop_assert_eq!(numbers, expected);
    }

    #[test]
    fn everyone_hears_when_the_daemon_stops(steps in history(false), after in history(false)) {
        let mut run = Run::new();
        for step in steps.iter().chain([&Step::Stop]).chain(&after) {
            run.take(step);
        }
        run.settle();
        everyone_has_heard(&run);
    }

    #[test]
    fn everyone_hears_when_the_conversation_is_deleted(steps in history(false), after in history(false)) {
        let mut run = Run::new();
        for step in &steps {
            run.take(step);
        }
        run.settle();
        for step in [&Step::Delete].into_iter().chain(&after) {
            run.take(step);
        }
        run.settle();
        everyone_has_heard(&run);
    }

    #[test]
    fn what_is_at_rest_is_on_disk(steps in history(false)) {
        let mut run = Run::new();
        for step in &steps {
            run.take(step);
        }
        run.settle();
        if let Some(record) = &run.world.disk.record {
            prop_assert_eq!(record, &run.world.model.record);
        }
    }

    #[test]
    fn what_is_at_rest_is_on_disk_after_it_failed_too(steps in history(true)) {
        let mut run = Run::new();
        for step in &steps {
            run.take(step);
        }
        run.settle();
        let model = &run.world.model;
        if let Some(record) = run.world.disk.record.as_ref().filter(|_| model.is_at_rest()) {
            prop_assert_eq!(record, &model.record);
        }
    }

    #[test]
    fn every_id_that_was_ever_held_resolves(steps in history(true)) {
        let mut run = Run::new();
        for step in &steps {
            run.take(step);
        }
        run.settle();
        for entry in run.world.disk.lineage.iter().filter(|entry| !entry.upstream_id.is_empty()) {
            prop_assert!(run.world.disk.upstream.contains(&entry.upstream_id), "{}", entry.upstream_id);
        }
    }

    #[test]
    fn no_question_outlives_its_session_unorphaned(steps in history(false)) {
        let mut run = Run::new();
        for step in &steps {
            run.take(step);
            let model = &run.world.model;
            if !model.view().live {
                prop_assert!(model.record.interrupts.iter().all(|interrupt| interrupt.orphaned));
            }
        }
    }

    #[test]
    fn what_comes_out_of_turn_breaks_nothing(inputs in vec(0..12_u8, 0..STEPS)) {
        let mut world = World::new();
        for input in inputs {
            let job = world.job.take().unwrap_or(99);
            let refused = || ConversationError::Unsupported("no".to_owned());
            match input {
                0 => {
                    world.prompt("hello");
                }
                1 => world.apply(Input::OpenFailed { job, error: refused() }),
                2 => world.apply(Input::Branched { job, result: Ok(branch("s1")) }),
                3 => world.apply(Input::SessionClosed { job }),
                4 => world.apply(Input::Configured { job, result: Ok(()) }),
                5 => world.apply(Input::PromptAnswered(Ok(RawJson::from(json!("what?"))))),
                6 => world.apply(Input::PromptAnswered(Err(RawJson::from(json!([]))))),
                7 => world.withdraws("q1"),
                8 => world.dies(),
                9 => world.elapses(Deadline::Cancel),
                10 => world.updates(&json!({"sessionUpdate": "plan", "entries": 7})),
                _ => world.rolls_silently("s9"),
            }
        }
    }
}
