//! The whole conversation, branched at each of its places and moved.

use std::path::Path;

use super::*;
use crate::branching::asked_before;

/// A restarted daemon moves the branches into another folder. The model must receive exactly what it received
/// there in the source, plus a note of the agent after the prompt about the new working directory.
#[test]
#[ignore = "installs the real adapter"]
fn d1_branches_behind_each_turn_have_the_same_beginning_in_another_folder() {
    let mut bridge = or_skip!(Bridge::start(Account::Key));
    let id = whole(&bridge);
    let checkpoints = bridge.checkpoints(id).into_iter().take(PROMPTS.len());
    let branches: Vec<ConversationId> = checkpoints
        .map(|checkpoint| {
            let at = Some(checkpoint.id.as_str().to_owned());
            let fork = bridge.fork_at(id, false, at).expect("conversation/fork");
            assert_eq!(
                (fork.fidelity, fork.via),
                (Fidelity::Full, Some(BranchedVia::Cut))
            );
            fork.conversation.id
        })
        .collect();
    bridge.stop_daemon();
    bridge.start_daemon();
    let source = bridge.lab.transcript(&bridge.head(id)).expect("the source");
    let before = fs::read(&source).expect("the source");
    let folder = bridge.lab.scratch().join("Größe & more");
    fs::create_dir_all(&folder).expect("a folder");
    let update = format!(
        "# Environment update\n - Primary working directory: {} (was {})",
        folder.display(),
        bridge.lab.project().display()
    );
    let nexts = PROMPTS[1..].iter().chain([&LAST]);
    for (index, (branch, next)) in branches.into_iter().zip(nexts).enumerate() {
        bridge.move_to(branch, &folder).expect("conversation/move");
        let text = format!("there behind {index}");
        let resumed = bridge.prompted(branch, &text).resumed.expect("a resume");
        assert_eq!((resumed.via, resumed.fidelity), (Via::Resume, Fidelity::Full));
        let mut expected = asked_before(&bridge, next);
        let messages = expected.conversation.as_array_mut().expect("messages");
        match messages.last_mut() {
            // Directly after the compaction the agent adds much more to this message.
            Some(last) if last["role"] == "system" => {
                let told = &mut last["content"][0]["text"];
                let date = "\n\nToday's date";
                let with_update = told
                    .as_str()
                    .expect("a text")
                    .replace(date, &format!("\n\n{update}{date}"));
                *told = with_update.into();
            }
            _ => messages.push(json!({"role": "system", "content": [{"type": "text", "text": update}]})),
        }
        let said = asked_before(&bridge, &text);
        if *next == BEHIND_COMPACTION && said.system != expected.system {
            // After a compaction the agent records its instructions either before or after the next prompt.
            // If it has not recorded them yet, it creates them again with the folder of its notes.
            let [old, new] = [bridge.lab.project(), folder.clone()].map(|folder| folder_name(&folder));
            let system = expected.system.to_string().replace(&old, &new);
            expected.system = serde_json::from_str(&system).expect("JSON");
        }
        said.check_is(&expected, &text);
    }
    assert_eq!(fs::read(&source).expect("the source"), before);
}

/// The name that Claude Code gives to the folder of a project with a short path.
fn folder_name(folder: &Path) -> String {
    let path = folder.to_str().expect("a path in UTF-8");
    let plain = path.encode_utf16().map(|unit| match u8::try_from(unit) {
        Ok(byte) if byte.is_ascii_alphanumeric() => char::from(byte),
        _ => '-',
    });
    plain.collect()
}
