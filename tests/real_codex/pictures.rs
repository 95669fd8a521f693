//! Pictures in prompts: they are sent and removed with the prompts that contain them, on each branch and
//! after each edit.

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::BranchedVia;
use bridge_protocol::link::Fidelity;
use bridge_protocol::method::Prompt;
use bridge_protocol::raw::PromptContent;
use bridge_protocol::turn::StopReason;
use serde_json::Value;

use super::bridge::Bridge;
use crate::branching::{branches_behind_each, edits_of_each, goes_through};
use crate::bridge_of::{PNG, with_picture, with_png};

const TOOLS: &str =
    r#"[[tool exec_command {"cmd":"echo one"} ;; exec_command {"cmd":"echo two"}]] [[text compared]]"#;

const PROMPTS: [&str; 4] = ["first words", "look at this", TOOLS, "and at this"];

const LAST: &str = "what was it";

/// A picture of 4,096 by 8 pixels, which is larger than Codex (0.166) sends.
const WIDE: &str = "iVBORw0KGgoAAAANSUhEUgAAEAAAAAAIAQAAAABRVQcZAAAAJ0lEQVR42u3SAQ0AAADCIPtHMaVBhAjfU65FAgNgAAyAATAABuDJAI3JoJdhQkYbAAAAAElFTkSuQmCC";

/// Sends a prompt with a picture before the text.
fn show(bridge: &Bridge, id: ConversationId, png: &str, text: &str) {
    let turn = bridge.answer(Prompt {
        conversation_id: id.into(),
        prompt: with_png(png, text),
        ..Default::default()
    });
    assert_eq!(turn.stop_reason, StopReason::EndTurn);
}

/// The pictures in the first request of a prompt.
fn sent(bridge: &Bridge, prompt: &str) -> Vec<String> {
    let request = bridge.lab.model.first_asked(prompt);
    let items = request["input"].as_array().expect("items").iter();
    let parts = items.filter_map(|item| item["content"].as_array()).flatten();
    let pictures = parts.filter(|part: &&Value| part["type"] == "input_image");
    let base64 = |part: &Value| {
        let url = part["image_url"].as_str().unwrap_or_default();
        url.strip_prefix("data:image/png;base64,").map(str::to_owned)
    };
    pictures.map(|part| base64(part).expect("a picture")).collect()
}

/// The number of pictures in the first request of a prompt; all must equal [`PNG`].
fn pictures(bridge: &Bridge, prompt: &str) -> usize {
    let sent = sent(bridge, prompt);
    assert!(sent.iter().all(|picture| picture == PNG), "{sent:?}");
    sent.len()
}

#[test]
#[ignore = "installs the real adapter"]
fn d2_pictures_are_where_they_were_on_each_branch_and_behind_each_edit() {
    let mut bridge = or_skip!(Bridge::start());
    let id = bridge.begun(&[PROMPTS[0]]);
    show(&bridge, id, PNG, PROMPTS[1]);
    bridge.prompted(id, PROMPTS[2]);
    show(&bridge, id, PNG, PROMPTS[3]);
    bridge.prompted(id, LAST);
    assert_eq!(
        [PROMPTS[0], PROMPTS[1], PROMPTS[2], LAST].map(|prompt| pictures(&bridge, prompt)),
        [0, 1, 1, 2]
    );
    branches_behind_each(&bridge, id, &PROMPTS, LAST, BranchedVia::Native, || {});
    edits_of_each(&bridge, id, &PROMPTS, LAST, BranchedVia::Native, || {});
    goes_through(&mut bridge, id);
    assert_eq!(pictures(&bridge, "moved"), 2);
}

/// Codex reduces a large picture before it sends it. The reduced picture must be the same on each branch and
/// after each edit.
#[test]
#[ignore = "installs the real adapter"]
fn d2_a_picture_that_is_made_smaller_is_the_same_on_each_branch_and_behind_each_edit() {
    const SHOWN: [&str; 3] = ["first words", "look at this", TOOLS];
    let mut bridge = or_skip!(Bridge::start());
    let id = bridge.begun(&[SHOWN[0]]);
    show(&bridge, id, WIDE, SHOWN[1]);
    bridge.prompted(id, SHOWN[2]);
    bridge.prompted(id, LAST);
    let made = sent(&bridge, SHOWN[1]);
    assert!(made.len() == 1 && made[0] != WIDE, "{made:?}");
    branches_behind_each(&bridge, id, &SHOWN, LAST, BranchedVia::Native, || {});
    edits_of_each(&bridge, id, &SHOWN, LAST, BranchedVia::Native, || {});
    goes_through(&mut bridge, id);
    assert_eq!(sent(&bridge, "moved"), made);
}

#[test]
#[ignore = "installs the real adapter"]
fn d2_a_picture_comes_with_an_edit_and_goes_with_one() {
    let bridge = or_skip!(Bridge::start());
    let id = bridge.begun(&["first words", TOOLS, LAST]);
    let edit = |back: usize, prompt| {
        let edited = bridge.edit_with(id, bridge.checkpoints(id)[back].id.as_str(), prompt);
        assert_eq!(edited.expect("conversation/edit").fidelity, Fidelity::Full);
    };
    edit(1, with_picture("look at this"));
    assert_eq!(pictures(&bridge, "look at this"), 1);
    bridge.prompted(id, "in words");
    assert_eq!(pictures(&bridge, "in words"), 1);
    edit(1, PromptContent::text("without it"));
    assert_eq!(pictures(&bridge, "without it"), 0);
}
