//! The agent's own notes of folders, changed together with a move of its sessions.

use super::*;

/// The stage with what Claude Code notes beside its transcripts, and the steps that change that too.
fn noted() -> (Stage, Vec<Step>) {
    let stage = Stage::new();
    stage.put("../.claude.json", &settings(OLD));
    stage.put("../history.jsonl", &typed(OLD));
    let folders = [(OLD.to_owned(), NEW.to_owned())];
    let (settings, left_out) = plan_settings(&stage.at(".."), &folders).unwrap();
    assert_eq!((settings.len(), left_out.len()), (2, 0));
    let mut steps = stage.steps("-home-u-other", NEW);
    steps.extend(settings);
    (stage, steps)
}

fn settings(cwd: &str) -> String {
    format!(
        "{{\n  \"projects\": {{ \"{cwd}\": {{\"allowed\": []}}, \"/home/u\": {{}} }},\n  \"n\": 1.0\n}}\n"
    )
}

fn typed(cwd: &str) -> String {
    format!("{{\"display\":\"in {OLD}\",\"project\":\"{cwd}/sub\"}}\n{{\"project\":\"/home/u\"}}\n")
}

#[test]
fn the_agents_notes_are_changed_with_the_move_or_not_at_all() {
    break_off_everywhere(noted);
    let (stage, steps) = noted();
    let (_, mut moving) = stage.begin(steps);
    carry_out(&mut moving).unwrap();
    moving.keep().unwrap();
    assert_eq!(stage.read("../.claude.json"), settings(NEW));
    assert_eq!(stage.read("../history.jsonl"), typed(NEW));
}

/// An agent that runs writes its settings whenever it likes.
#[test]
fn what_an_agent_has_noted_since_outlives_a_move_that_is_taken_back_and_one_that_is_undone() {
    for is_undone in [false, true] {
        let (stage, steps) = noted();
        let back: Vec<Step> = steps
            .iter()
            .filter(|step| step.kind == Kind::Settings)
            .cloned()
            .map(|step| Step {
                folders: vec![(NEW.to_owned(), OLD.to_owned())],
                ..step
            })
            .collect();
        let (id, mut moving) = stage.begin(steps);
        carry_out(&mut moving).unwrap();
        let since = settings(NEW).replace("1.0", "2.0");
        stage.put("../.claude.json", &since);
        let more = "{\"project\":\"/home/u/other/more\"}\n";
        stage.put("../history.jsonl", &format!("{}{more}", typed(NEW)));
        if is_undone {
            moving.keep().unwrap();
            let mut back = back;
            finished(&stage.data, &id).unwrap().unwrap().restore(&mut back);
            let (_, mut undoing) = stage.begin(back);
            carry_out(&mut undoing).unwrap();
            undoing.keep().unwrap();
        } else {
            assert!(moving.take_back());
        }
        assert_eq!(stage.read("../.claude.json"), settings(OLD).replace("1.0", "2.0"));
        assert_eq!(stage.read("../history.jsonl"), format!("{}{more}", typed(OLD)));
    }
}

#[test]
fn a_link_to_the_agents_notes_stays_a_link_and_what_is_none_of_them_stays_as_it_is() {
    let stage = Stage::new();
    stage.put("../dotfiles/claude.json", &settings(OLD));
    symlink(stage.at("../dotfiles/claude.json"), stage.at("../.claude.json")).unwrap();
    stage.put("../history.jsonl", "");
    let folders = [(OLD.to_owned(), NEW.to_owned())];
    let (steps, left_out) = plan_settings(&stage.at(".."), &folders).unwrap();
    assert_eq!((steps.len(), left_out.len()), (1, 0));
    let (_, mut moving) = stage.begin(steps);
    carry_out(&mut moving).unwrap();
    moving.keep().unwrap();
    assert!(stage.at("../.claude.json").is_symlink());
    assert_eq!(stage.read("../.claude.json"), settings(NEW));

    stage.put("../.claude.json", "[1, 2");
    let (steps, left_out) = plan_settings(&stage.at(".."), &folders).unwrap();
    assert!(steps.is_empty());
    assert!(left_out[0].contains("claude.json"), "{left_out:?}");
}

/// What a background task was told since stays, and one that names another folder is left alone.
#[test]
fn background_tasks_name_the_new_folder_until_that_is_undone() {
    let state = |cwd: &str, state: &str| {
        format!("{{\n  \"state\": \"{state}\",\n  \"originCwd\": \"{cwd}\",\n  \"cwd\": \"{cwd}/sub\"\n}}\n")
    };
    for is_undone in [false, true] {
        let stage = Stage::new();
        stage.put("../jobs/a1/state.json", &state(OLD, "running"));
        stage.put("../jobs/b2/state.json", &state("/home/u", "done"));
        stage.put("../jobs/c3/state.json", "torn {");
        stage.put("../jobs/pins.json", "[]");
        let folders = [(OLD.to_owned(), NEW.to_owned())];
        let (steps, left_out) = plan_settings(&stage.at(".."), &folders).unwrap();
        assert_eq!((steps.len(), left_out.len()), (1, 0));
        let mut back = vec![Step {
            folders: vec![(NEW.to_owned(), OLD.to_owned())],
            ..steps[0].clone()
        }];
        let (id, mut moving) = stage.begin(steps);
        carry_out(&mut moving).unwrap();
        assert_eq!(stage.read("../jobs/a1/state.json"), state(NEW, "running"));
        stage.put("../jobs/a1/state.json", &state(NEW, "done"));
        if is_undone {
            moving.keep().unwrap();
            finished(&stage.data, &id).unwrap().unwrap().restore(&mut back);
            let (_, mut undoing) = stage.begin(back);
            carry_out(&mut undoing).unwrap();
            undoing.keep().unwrap();
        } else {
            assert!(moving.take_back());
        }
        assert_eq!(stage.read("../jobs/a1/state.json"), state(OLD, "done"));
        assert_eq!(stage.read("../jobs/b2/state.json"), state("/home/u", "done"));
        assert_eq!(stage.read("../jobs/c3/state.json"), "torn {");
    }
}
