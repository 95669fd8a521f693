//! One conversation that goes through everything that a conversation must survive.

use bridge_protocol::conversation::BranchedVia;

use crate::branching::survives_everything;
use crate::real_claude::bridge::Bridge;
use crate::real_claude::carrying::PARALLEL;
use crate::support::claude::Account;

#[test]
#[ignore = "installs the real adapter"]
fn a_conversation_survives_branches_edits_restarts_a_move_and_a_deletion() {
    let mut bridge = or_skip!(Bridge::start(Account::Key));
    survives_everything(&mut bridge, &["first", PARALLEL], BranchedVia::Cut);
}
