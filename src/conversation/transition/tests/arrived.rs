//! What the transcript, or the agent, tells of a prompt that was cut short.

use bridge_protocol::conversation::ContinueAt;

use crate::conversation::effect::Arrival;

use super::continuing::{GO_ON, RESET, due_at, limit, unreachable, waiting};
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
        world.ascertains(Arrival::Unknown);
        world.reopens();
        world.expect_among(&format!("send {sent}"));
    }
}

/// A later prompt stands behind the same place and would be taken for it.
#[test]
fn whether_it_arrived_is_asked_before_a_later_prompt_goes_out() {
    for (earlier, text) in [(Arrival::Absent, "second"), (Arrival::Present, GO_ON)] {
        let mut world = waiting();
        world.earlier = Some(earlier);
        world.prompt("third");
        world.refuses(unreachable());
        world.passes_to(RESET);
        world.falls_due();
        world.forget_log();
        // What was known before stands.
        world.ascertains(Arrival::Unknown);
        world.expect(&["event state prompting", &format!("send {text}")]);
    }
    // Of one that waits as well only what the agent lacks goes out.
    let both = format!("second\n{GO_ON}");
    for (earlier, newer, text) in [
        (Arrival::Absent, Arrival::Absent, "second\nthird"),
        (Arrival::Absent, Arrival::Present, &both),
        (Arrival::Present, Arrival::Absent, "third"),
        (Arrival::Present, Arrival::Present, GO_ON),
    ] {
        let mut world = waiting();
        world.earlier = Some(earlier);
        world.prompt_and_wait("third");
        world.refuses(limit());
        world.passes_to(&due_at(&world).unwrap());
        world.falls_due();
        world.forget_log();
        world.ascertains(newer);
        world.expect_among(&format!("send {text}"));
        let sent = world.model.record.turn.as_ref().unwrap().prompt.to_text();
        assert_eq!(sent, text);
    }
}
