//! What may happen to a conversation in a random history.

use bridge_protocol::link::Fidelity;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::conversation::effect::Deadline;

/// How many steps a history has.
pub(super) const STEPS: usize = 40;

/// One thing that happens. What cannot happen at the moment (the answer to a prompt that was not sent, say) is left out.
#[derive(Clone, Debug)]
pub(super) enum Step {
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
    Edit(Fidelity),
    Undo,
    Respond {
        question: u8,
        allow: bool,
    },
    Close,
    Reset,
    Move {
        key: Option<u8>,
    },
    Repair {
        key: Option<u8>,
    },
    Delete,
    /// The pending job ends; how depends on what it is.
    JobEnds {
        well: bool,
        way: u8,
    },
    /// The session that is being closed is.
    Closes,
    WriteEnds {
        well: bool,
    },
    AgentSpeaks,
    AgentReports,
    AgentAnswers(Outcome),
    AgentAsks,
    AgentWithdraws(u8),
    AgentDies,
    /// Another conversation found that nobody is signed in there.
    AgentRetires,
    AgentRolls,
    Elapses(Deadline),
    /// A prompt that waits for the end of a limit.
    PromptAndWait,
    GoOn {
        cancel: bool,
    },
    /// A long time passes, and what is due falls due.
    FallsDue,
    /// By half a day.
    ClockIsSetBack,
    Stop,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    Done,
    Cancelled,
    Limit,
    SignedOut,
    Unknown,
    Died,
    /// It did not get out of the daemon.
    Unsent {
        is_ending: bool,
    },
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
        1 => Just(Outcome::SignedOut),
        1 => Just(Outcome::Unknown),
        1 => Just(Outcome::Died),
        1 => any::<bool>().prop_map(|is_ending| Outcome::Unsent { is_ending }),
    ]
}

fn deadline() -> impl Strategy<Value = Deadline> {
    prop_oneof![
        Just(Deadline::Accept),
        Just(Deadline::Cancel),
        Just(Deadline::Climb),
        Just(Deadline::Idle),
        Just(Deadline::Rewrite)
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
        3 => fidelity().prop_map(Step::Edit),
        2 => Just(Step::Undo),
        2 => (0..4_u8, any::<bool>()).prop_map(|(question, allow)| Step::Respond { question, allow }),
        1 => Just(Step::Close),
        1 => Just(Step::Reset),
        2 => proptest::option::of(0..2_u8).prop_map(|key| Step::Move { key }),
        2 => proptest::option::of(2..4_u8).prop_map(|key| Step::Repair { key }),
        8 => (prop::bool::weighted(0.8), 0..4_u8).prop_map(|(well, way)| Step::JobEnds { well, way }),
        2 => Just(Step::Closes),
        // Shrinking would let a disk fail that never does, so the weight alone is not enough.
        12 => prop::bool::weighted(0.8).prop_map(move |well| Step::WriteEnds { well: well || !disk_fails }),
        3 => Just(Step::AgentSpeaks),
        1 => Just(Step::AgentReports),
        6 => outcome().prop_map(Step::AgentAnswers),
        2 => Just(Step::AgentAsks),
        1 => (0..4_u8).prop_map(Step::AgentWithdraws),
        1 => Just(Step::AgentDies),
        1 => Just(Step::AgentRetires),
        1 => Just(Step::AgentRolls),
        2 => deadline().prop_map(Step::Elapses),
        2 => Just(Step::PromptAndWait),
        1 => any::<bool>().prop_map(|cancel| Step::GoOn { cancel }),
        3 => Just(Step::FallsDue),
        1 => Just(Step::ClockIsSetBack),
    ]
}

pub(super) fn history(disk_fails: bool) -> impl Strategy<Value = Vec<Step>> {
    vec(step(disk_fails), 0..STEPS)
}
