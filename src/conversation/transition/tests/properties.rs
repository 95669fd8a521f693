//! Rules that hold whatever callers, agent, disk and clock do, in any order.

use bridge_protocol::raw::RawJson;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;

use super::outside::branch;
use super::random::Run;
use super::steps::{STEPS, Step, history};
use super::world::World;
use crate::conversation::answer::Answer;
use crate::conversation::effect::{Deadline, WorkResult};
use crate::conversation::error::ConversationError;

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

/// Also checks that the disk has the model's record, every session id, and each lineage entry once.
fn check_settled(run: &Run) {
    everyone_has_heard(run);
    let (model, disk) = (&run.world.model, &run.world.disk);
    assert!(model.writer.is_at_rest());
    if let Some(record) = &disk.record {
        assert_eq!(record, &model.record);
    }
    let mut numbers: Vec<u64> = disk.lineage.iter().map(|entry| entry.seq).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(1..=model.record.chain.last_lineage_seq()));
    for entry in disk.lineage.iter().filter(|entry| !entry.upstream_id.is_empty()) {
        assert!(
            disk.upstream.contains(&entry.upstream_id),
            "{}",
            entry.upstream_id
        );
    }
}

proptest! {
    // A history that fails is told by the failure itself; no file of it is left behind.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rules_hold_after_each_step_and_everyone_hears_in_the_end(steps in history(false)) {
        check_settled(&Run::settled(&steps));
    }

    #[test]
    fn rules_hold_on_a_failing_disk_too(steps in history(true)) {
        check_settled(&Run::settled(&steps));
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
        let mut run = Run::settled(&steps);
        for step in [&Step::Delete].into_iter().chain(&after) {
            run.take(step);
        }
        run.settle();
        everyone_has_heard(&run);
    }

    #[test]
    fn what_was_shown_in_line_is_held_after_a_kill_and_goes_out_once(
        steps in history(false),
        after in history(false),
    ) {
        let mut run = Run::new();
        for step in &steps {
            run.take(step);
        }
        let Some(record) = run.world.disk.record.clone() else { return Ok(()) };
        let shown = run.world.model.view().queue;
        run.is_killed();
        let held: Vec<_> = run.world.model.view().queue.into_iter().map(|held| held.turn_id).collect();
        let cut = record.turn.map(|turn| turn.turn_id);
        for shown in shown {
            let id = shown.turn_id;
            prop_assert!(held.contains(&id) || cut.as_ref() == Some(&id), "{id} is lost");
        }
        for id in &held {
            let call: u32 = id.as_str()[1..].parse().expect("a call's turn");
            prop_assert!(!run.world.answers.contains_key(&call), "{id} waits, and its caller was told of its end");
        }
        let earlier = run.world.calls;
        for step in &after {
            run.take(step);
        }
        run.settle();
        // What was released may wait for the interrupted turn that is about to be continued, and for nothing else.
        run.take(&Step::FallsDue);
        run.settle();
        for call in earlier + 1..=run.world.calls {
            prop_assert!(run.world.answers.contains_key(&call), "call {call} was never answered");
        }
        // Somebody answers what is open, and has it gone on with.
        for question in 0..STEPS {
            run.take(&Step::Respond { question: u8::try_from(question).unwrap_or(0), allow: false });
        }
        for step in [Step::GoOn { cancel: false }, Step::FallsDue] {
            run.settle();
            run.take(&step);
        }
        run.settle();
        prop_assert!(run.world.model.view().queue.is_empty(), "{:?}", run.world.model.view().queue);
        for (turn, seen) in &run.seen {
            prop_assert_eq!(seen.accepted, seen.ended, "{} never ended", turn);
        }
    }

    /// The next start gives such a turn its end by the transcript, where an edit may stand after all.
    #[test]
    fn nobody_hears_that_nothing_came_of_a_turn_that_still_runs_on_disk(steps in history(false)) {
        let mut run = Run::new();
        for step in &steps {
            run.take(step);
            let record = run.world.disk.record.as_ref();
            let Some(turn) = record.and_then(|record| record.turn.as_ref()) else { continue };
            let call: Option<&str> = turn.turn_id.as_str().strip_prefix('t');
            let call: Option<u32> = call.and_then(|call| call.parse().ok());
            let told = call.and_then(|call| run.world.answers.get(&call));
            let is_promised = told.is_none_or(|told| matches!(told, Ok(Answer::Responded(_))));
            prop_assert!(is_promised, "{} runs on disk, and was answered: {told:?}", turn.turn_id);
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
        world.words_are_checked = false;
        for input in inputs {
            let job = world.job.take().unwrap_or(99);
            let refused = || ConversationError::Unsupported("no".to_owned());
            match input {
                0 => {
                    world.prompt("hello");
                }
                1 => world.apply(|model| model.work_done(job, Err(refused()))),
                2 => world.apply(|model| model.work_done(job, Ok(WorkResult::Branched(branch("s1"))))),
                3 => world.apply(|model| model.work_done(job, Ok(WorkResult::Closed(Default::default())))),
                4 => world.apply(|model| model.work_done(job, Ok(WorkResult::Configured))),
                5 => world.apply(|model| model.prompt_answered(Ok(RawJson::from(json!("what?"))))),
                6 => world.apply(|model| model.prompt_answered(Err(RawJson::from(json!([]))))),
                7 => world.withdraws("q1"),
                8 => world.dies(),
                9 => world.elapses(Deadline::Cancel),
                10 => world.updates(&json!({"sessionUpdate": "plan", "entries": 7})),
                _ => world.rolls_silently("s9"),
            }
        }
    }
}
