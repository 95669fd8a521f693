//! What the transcript, or the agent, shows about an interrupted prompt.

use bridge_protocol::conversation::ContinueAt;

use crate::conversation::effect::PromptArrival;

use super::continuing::{GO_ON, anchor};
use super::world::World;

/// Where no transcript can be read, the agent's own words tell that it has the prompt.
#[test]
fn what_the_agent_showed_it_has_does_not_go_out_again() {
    for (is_taken, sent) in [(true, GO_ON), (false, "second")] {
        let mut world = World::live();
        world.anchor = None;
        world.prompt_and_wait("second");
        if is_taken {
            world.says_something();
            assert!(world.disk.record.as_ref().unwrap().turn.as_ref().unwrap().taken);
        }
        world.dies();
        let at = ContinueAt::Time(world.now());
        world.continue_at(at, None);
        world.falls_due();
        world.ascertains(PromptArrival::Unknown);
        world.reopens();
        world.expect_among(&format!("send {sent}"));
    }
}

/// Where a transcript can be read, it decides. The agent's own words count only if the transcript is lost.
#[test]
fn a_transcript_without_the_prompt_outweighs_what_the_agent_showed() {
    for (arrival, sent) in [
        (PromptArrival::Absent, "second"),
        (PromptArrival::Unknown, GO_ON),
        (PromptArrival::Present, GO_ON),
    ] {
        let mut world = World::live();
        world.anchor = anchor();
        world.prompt_and_wait("second");
        world.says_something();
        world.dies();
        let at = ContinueAt::Time(world.now());
        world.continue_at(at, None);
        world.falls_due();
        world.ascertains(arrival);
        world.reopens();
        world.expect_among(&format!("send {sent}"));
    }
}
