//! `continue`, `send --wait-limit` and `recover` with a real daemon and the built-in agent.

use std::io::Read;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::home::Home;
use super::printed::{check_printed, check_seen, check_shown, commands};
use super::terminal::{ASKED, Terminal};
use super::text;
use crate::continuing::GO_ON;

/// The prompts of the conversation's history, oldest first.
fn prompts(home: &Home, id: &str) -> Vec<String> {
    let told: Value = serde_json::from_str(&home.said(&["checkpoints", id, "--json"])).unwrap();
    let mut places = told["checkpoints"].as_array().unwrap().clone();
    places.sort_by_key(|place| place["step"].as_u64());
    let prompts = places.iter().map(|place| place["prompt"].as_str().unwrap());
    prompts.map(str::to_owned).collect()
}

/// Whether it was continued last.
fn has_continued(home: &Home, id: &str) -> bool {
    prompts(home, id).last().unwrap().starts_with(GO_ON)
}

/// Waits until it has gone on.
fn wait_idle(home: &Home, id: &str) {
    home.once(id, |shown| shown["cutShort"] != true && shown["state"] == "idle");
}

#[test]
fn a_limit_is_waited_for_and_the_wait_is_called_off() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let sent = home.run(&["send", &id, "--wait-limit", "[[limit 3600]]"]);
    assert_eq!(sent.status.code(), Some(7));
    assert!(home.shown(&id)["continuation"].is_object());
    home.shows(&["continue", &id, "--cancel"]);
    assert_eq!(home.shown(&id)["continuation"], Value::Null);
    home.printed(&["continue", &id, "--cancel"], 0);

    home.said(&["continue", &id, "--at-reset"]);
    let limit = home.shown(&id);
    assert_eq!(limit["continuation"]["at"], limit["limit"]["resetsAt"]);
}

#[test]
fn what_makes_no_sense_is_told_with_what_does() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "one"]);
    for (arguments, code) in [
        (&["continue", &id][..], 5),
        (&["continue", &id, "--at", "soon"], 2),
        (&["continue", &id, "--at", "2020-01-01T00:00", "--text", "hi"], 2),
        (&["continue", &id, "--at", "+0m", "--text", "hi"], 2),
        (&["continue", &id, "--at-reset"], 5),
        (&["continue", "5d0c2a00"], 4),
    ] {
        home.printed(arguments, code);
    }
    // One command each, which can be pasted.
    let hinted = |arguments: &[&str], code| {
        let told = home.printed(arguments, code);
        let [command] = commands(&told)[..] else {
            panic!("{told}")
        };
        home.said_pasted(command)
    };
    let told = home.printed(&["send", &id, "[[fail context]]"], 6);
    home.said_pasted(commands(&told)[1]);
    assert_eq!(home.shown(&id)["head"], Value::Null);
    home.said(&["send", &id, "two"]);
    hinted(&["continue", &id, "--at", "+1h"], 5);
    assert!(home.shown(&id)["continuation"].is_object());
}

/// What is scheduled keeps its text when only the time changes, and is shown.
#[test]
fn a_schedule_is_moved_with_its_text() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "one"]);
    home.said(&["continue", &id, "--at", "+1h", "--text", "Count the herons"]);
    let before = home.shown(&id)["continuation"]["at"].clone();
    home.said(&["continue", &id, "--at", "+2h"]);
    let after = home.shown(&id)["continuation"].clone();
    assert_ne!(after["at"], before);
    assert_eq!(after["text"], "Count the herons");
    let shown = home.said(&["show", &id]);
    assert!(shown.contains("Count the herons"), "{shown}");
    home.said(&["continue", &id]);
    assert_eq!(prompts(&home, &id), ["one", "Count the herons"]);
    home.printed(&["continue", &id, "--at", "+1h", "--text", " "], 2);
}

/// Nobody has cancelled it.
#[test]
fn a_stop_during_a_turn_is_told_with_what_continues_it() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let mut sent = home
        .command(&["send", &id, "[[say Be]][[say gun]] [[hang]]"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It stays open, since a closed one ends the command.
    let mut answer = sent.stdout.take().unwrap();
    answer.read_exact(&mut [0; 5]).unwrap();
    home.said(&["stop"]);
    let told = check_printed(&["send, stopped"], &sent.wait_with_output().unwrap(), 1);
    home.said_pasted(commands(&told).last().unwrap());
    assert!(has_continued(&home, &id));
}

#[test]
fn a_time_may_be_short() {
    let home = Home::new();
    let id = home.said(&["new"]);
    for at in ["6:30", "+30m", "+1h", "+1h30m"] {
        home.said(&["continue", &id, "--at", at, "--text", "hi"]);
        assert!(home.shown(&id)["continuation"].is_object(), "{at}");
    }
}

/// A limit, a missing sign-in, a crash, a stop of the daemon, an open question: each is told what became of
/// it, and goes on.
#[test]
fn recover_goes_on_with_all_that_was_cut_short() {
    let home = Home::new();
    let made = |title: &str| home.said(&["new", "--title", title]);
    let (limited, crashed, asks, idle) = (made("limited"), made("crashed"), made("asks"), made("idle"));
    let signed_out = made("signed out");
    assert_eq!(
        home.run(&["send", &signed_out, "[[fail auth]]"]).status.code(),
        Some(6)
    );
    assert_eq!(home.shown(&signed_out)["state"], "idle");
    home.said(&["send", &idle, "hello"]);
    assert_eq!(
        home.run(&["send", &limited, "[[limit 3600]]"]).status.code(),
        Some(7)
    );
    assert_eq!(home.run(&["send", &crashed, "[[crash]]"]).status.code(), Some(6));
    assert_eq!(
        home.run(&["send", &asks, "[[ask Really?]]"]).status.code(),
        Some(8)
    );
    home.run(&["stop"]);

    let told = home.said(&["recover", "--all"]);
    let mut lines: Vec<&str> = told.lines().collect();
    // How far away the reset is depends on the clock.
    lines.retain(|line| !line.starts_with(&limited[..8]));
    lines.sort_by_key(|line| line.split_once(' ').map(|(_, rest)| rest));
    check_seen("recover --all", &lines.join("\n"));
    assert_eq!(told.lines().count(), 4, "{told}");
    for id in [&crashed, &signed_out] {
        wait_idle(&home, id);
        assert!(has_continued(&home, id));
    }

    assert_eq!(home.run(&["recover", &idle]).status.code(), Some(5));
    // What is left is done, or still waits.
    let told = home.said(&["continue", "--all", "--json"]);
    let told: Vec<Value> = told
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(told.iter().all(|one| one["type"] == "result"), "{told:?}");
    let did = |id: &str| {
        told.iter()
            .find(|one| one["conversationId"] == id)
            .map(|one| one["did"].clone())
    };
    assert_eq!(
        (did(&limited), did(&asks)),
        (Some(json!("continues")), Some(json!("asks"))),
        "{told:?}"
    );
}

/// Without a time the turn is continued at once, and its answer is shown.
#[test]
fn continue_follows_the_turn() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.printed(&["send", &id, "[[crash]]"], 6);
    let answer = home.said(&["continue", &id]);
    assert!(answer.starts_with("echo: "), "{answer}");
    // The user did not write what was sent.
    home.shows(&["history", &id]);
    assert!(has_continued(&home, &id));
    let answer = home.said(&["continue", &id, "--text", "And now this"]);
    assert_eq!(answer, "echo: And now this");
}

/// Nobody is there to answer: the question stays open.
/// It starts no turn, so there is none to follow; the second time it has failed already.
#[test]
fn a_continuation_that_cannot_start_is_an_error() {
    let home = Home::new();
    let folder = home.path().join("gone");
    std::fs::create_dir(&folder).unwrap();
    let id = home.said(&["new", "--cwd", folder.to_str().unwrap()]);
    home.run(&["send", &id, "[[limit 3600]]"]);
    home.said(&["close", &id]);
    std::fs::remove_dir(&folder).unwrap();
    for _ in 0..2 {
        let told = home.printed(&["continue", &id], 1);
        assert!(told.contains("there is no folder"), "{told}");
    }
}

#[test]
fn continue_exits_when_the_agent_asks() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.printed(&["send", &id, "[[crash]]"], 6);
    let told = home.printed(&["continue", &id, "--text", "[[ask Really?]] [[say Done it]]"], 8);
    home.said_pasted(commands(&told)[0]);
    home.once(&id, |shown| shown["state"] == "idle");
    assert!(home.said(&["history", &id]).contains("Done it"));
}

/// After a later prompt was answered, the turn that waited for the reset is not sent any more.
#[test]
fn what_a_prompt_does_to_a_turn_that_waits_is_told() {
    let home = Home::new();
    let id = home.said(&["new"]);
    for (turn, is_scheduled) in [("first", false), ("second", true)] {
        let limited = format!("[[limit 5400]] {turn}");
        assert_eq!(home.run(&["send", &id, &limited]).status.code(), Some(7));
        if is_scheduled {
            home.said(&["continue", &id, "--at-reset"]);
        }
        home.printed(&["send", &id, &format!("after the {turn}")], 0);
        assert_eq!(home.shown(&id)["continuation"], Value::Null, "{turn}");
        // Nothing waits any more.
        assert_eq!(text(&home.run(&["send", &id, "and then"]).stderr), "");
    }
    home.said(&["continue", &id, "--at", "+1h30m", "--text", "scheduled"]);
    home.printed(&["send", &id, "before its time"], 0);
    assert_eq!(home.shown(&id)["continuation"], Value::Null);
}

/// A command that waits, in the background, without its output. It starts no daemon: one that outlives its home would.
pub(super) fn begin(home: &Home, arguments: &[&str]) -> Child {
    let mut command = home.command(&[&["--no-start"], arguments].concat());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().unwrap()
}

/// What a kill of the daemon left in line, behind the turn that it cut short.
#[test]
fn recover_goes_on_with_the_line_after_a_kill() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let running = begin(&home, &["send", &id, "[[say so]][[hang]]"]);
    home.once_agent_spoke(&id);
    let busy = home.run(&["continue", &id]);
    assert_eq!(busy.status.code(), Some(5), "{}", text(&busy.stderr));
    let waiting = begin(&home, &["send", &id, "--queue", "it waited"]);
    home.once(&id, |shown| {
        shown["queue"].as_array().is_some_and(|queue| queue.len() == 1)
    });
    // Those who sent them have gone first: they would have picked it up.
    for mut child in [running, waiting] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    home.kill_daemon();
    home.shows(&["recover", "--all"]);
    wait_idle(&home, &id);
    let sent = prompts(&home, &id);
    assert!(sent.len() == 3 && sent[1].starts_with(GO_ON), "{sent:?}");
    assert_eq!([&*sent[0], &*sent[2]], ["[[say so]][[hang]]", "it waited"]);
}

/// A command that waits, whose output is read at its end.
fn begin_heard(home: &Home, arguments: &[&str]) -> Child {
    let mut command = home.command(&[&["--no-start"], arguments].concat());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn a_queued_prompt_that_was_answered_before_its_sender_came_back_shows_its_answer() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "before"]);
    let mut running = begin(&home, &["send", &id, "[[say so]][[hang]]"]);
    home.once_agent_spoke(&id);
    let queued = begin_heard(&home, &["send", &id, "--queue", "second"]);
    home.once(&id, |shown| {
        shown["queue"].as_array().is_some_and(|queue| queue.len() == 1)
    });
    running.kill().unwrap();
    running.wait().unwrap();
    let pid = Pid::from_child(&queued);
    kill_process(pid, Signal::STOP).unwrap();
    home.kill_daemon();
    home.said(&["recover", "--all"]);
    wait_idle(&home, &id);
    // Its words begin the words of the other.
    home.said(&["send", &id, "sec"]);

    kill_process(pid, Signal::CONT).unwrap();
    let output = queued.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).trim(), "echo: second");
}

/// An earlier prompt had the same words. Its answer is not that of one that was never sent.
#[test]
fn a_queued_prompt_that_is_withdrawn_shows_no_answer() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "again"]);
    let mut running = begin(&home, &["send", &id, "[[say so]][[hang]]"]);
    home.once_agent_spoke(&id);
    let queued = begin_heard(&home, &["send", &id, "--queue", "again"]);
    home.once(&id, |shown| {
        shown["queue"].as_array().is_some_and(|queue| queue.len() == 1)
    });
    home.said(&["cancel", &id, "--queued"]);
    let output = queued.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(text(&output.stdout), "");
    assert!(!text(&output.stderr).contains("missed"), "{output:?}");
    running.wait().unwrap();
}

/// The sender fetches missed events, none of which is about its prompt, while another turn runs.
#[test]
fn a_queued_prompt_that_is_withdrawn_while_its_sender_lags_is_not_waited_for() {
    let home = Home::new();
    home.configure("[limits]\nsubscriber_events = 64\n");
    let id = home.said(&["new"]);
    let asks = ["send", &id, "[[ask one]] [[stream 1500 0]] [[ask two]]"];
    assert_eq!(home.run(&asks).status.code(), Some(8));
    let queued = begin_heard(&home, &["send", &id, "--queue", "second"]);
    home.once(&id, |shown| {
        shown["queue"].as_array().is_some_and(|queue| queue.len() == 1)
    });
    let pid = Pid::from_child(&queued);
    kill_process(pid, Signal::STOP).unwrap();
    home.run(&["answer", &id, "allow"]);
    Terminal::run_plain(&home, 80, &["attach", &id]).until("? two");
    home.said(&["cancel", &id, "--queued"]);
    let mut others = begin(&home, &["send", &id, "[[stream 6000 20]]"]);
    home.once(&id, |shown| shown["state"] == "prompting");
    kill_process(pid, Signal::CONT).unwrap();
    let output = queued.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(text(&output.stdout), "");
    assert_eq!(home.shown(&id)["state"], "prompting", "the other turn still runs");
    home.said(&["cancel", &id]);
    others.wait().unwrap();
}

/// Whoever of them finds the next daemon first.
#[test]
fn queued_prompts_run_in_order_behind_the_turn_that_the_daemon_interrupted() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "before"]);
    let mut sent = vec![begin_heard(&home, &["send", &id, "[[say so]][[hang]]"])];
    home.once_agent_spoke(&id);
    let queued = ["second", "third", "fourth"];
    for (index, prompt) in queued.iter().enumerate() {
        sent.push(begin_heard(&home, &["send", &id, "--queue", prompt]));
        home.once(&id, |shown| {
            shown["queue"]
                .as_array()
                .is_some_and(|queue| queue.len() == index + 1)
        });
    }
    // The one that was queued first comes back last.
    let pids: Vec<Pid> = sent.iter().map(Pid::from_child).collect();
    for pid in &pids {
        kill_process(*pid, Signal::STOP).unwrap();
    }
    home.kill_daemon();
    home.said(&["ls"]);
    for pid in pids[1..].iter().rev().chain(&pids[..1]) {
        kill_process(*pid, Signal::CONT).unwrap();
    }
    // All may be over before it looks. What it names then is not refused.
    let interrupted = sent.remove(0).wait_with_output().unwrap();
    for command in commands(&text(&interrupted.stderr)) {
        home.said_pasted(command);
    }
    for (child, prompt) in sent.into_iter().zip(queued) {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let answer = format!("echo: {prompt}");
        assert!(text(&output.stdout).contains(&answer), "{output:?}");
    }
    let sent = prompts(&home, &id);
    assert!(sent[2].starts_with(GO_ON), "{sent:?}");
    assert_eq!(sent[3..], queued);
}

/// What it names then must not be refused.
#[test]
fn an_interrupted_turn_that_another_prompt_followed_is_not_offered_to_be_continued() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let send = ["send", &id, "[[say so]][[hang]]"];
    let sent = begin_heard(&home, &send);
    home.once_agent_spoke(&id);
    kill_process(Pid::from_child(&sent), Signal::STOP).unwrap();
    home.kill_daemon();
    home.said(&["send", &id, "another"]);
    kill_process(Pid::from_child(&sent), Signal::CONT).unwrap();
    let output = sent.wait_with_output().unwrap();
    let told = check_printed(&send, &output, 1);
    home.said_pasted(commands(&told).pop().unwrap());
}

#[test]
fn recover_tells_what_it_could_not_bring_back() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "[[lose]]"]);
    // Each attempt is listed, if there were several.
    let told = home.printed(&["send", &id, "again"], 6);
    assert_eq!(told.matches("\n  tried ").count(), 2, "{told}");
    assert_eq!(home.shown(&id)["state"], "failed");
    let all = ["continue", "--all"];
    check_shown(&all, &home.run(&all), 1);
}

/// `show` prints the text of a queued prompt; `continue` and `cancel` report how many they send or drop.
#[test]
fn queued_prompts_are_named_by_what_concerns_them() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let queue = |text: &str| {
        let running = begin(&home, &["send", &id, "[[say so]][[hang]]"]);
        home.once_agent_spoke(&id);
        let waiting = begin(&home, &["send", &id, "--queue", text]);
        home.once(&id, |shown| {
            shown["queue"].as_array().is_some_and(|queue| queue.len() == 1)
        });
        [running, waiting]
    };
    let senders = queue("it waited");
    assert!(home.said(&["show", &id]).contains(": it waited"));
    let cancelled = text(&home.run(&["cancel", &id, "--queued"]).stderr);
    let both = format!("Cancelled the turn of {} and 1 queued prompt.", &id[..8]);
    assert!(cancelled.contains(&both), "{cancelled}");
    for mut child in senders {
        child.wait().unwrap();
    }
    for mut child in queue("it waits again") {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    home.kill_daemon();
    let continued = home.run(&["continue", &id]);
    assert_eq!(continued.status.code(), Some(0), "{continued:?}");
    let told = text(&continued.stderr);
    assert!(told.contains("then sends 1 queued prompt"), "{told}");
    // The answer to the queued prompt follows that of the continued turn.
    assert!(told.contains("> it waits again"), "{told}");
    let answers = text(&continued.stdout);
    let last = answers.lines().last();
    assert_eq!(last, Some("echo: it waits again"), "{answers}");
    assert_eq!(answers.matches("echo: ").count(), 2, "{answers}");
    assert_eq!(home.shown(&id)["state"], "idle");
}

/// A queued prompt that fails ends the command as it would end `send`, and the prompts after it are held again.
#[test]
fn continue_ends_with_the_queued_prompt_that_fails() {
    let home = Home::new();
    let id = home.said(&["new"]);
    let mut senders = vec![begin(&home, &["send", &id, "[[say so]][[hang]]"])];
    home.once_agent_spoke(&id);
    for (at, prompt) in ["[[limit 5400]]", "never sent"].iter().enumerate() {
        senders.push(begin(&home, &["send", &id, "--queue", prompt]));
        home.once(&id, |shown| {
            shown["queue"]
                .as_array()
                .is_some_and(|queue| queue.len() == at + 1)
        });
    }
    for mut child in senders {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    home.kill_daemon();
    let continued = home.run(&["continue", &id]);
    assert_eq!(continued.status.code(), Some(7), "{continued:?}");
    assert_eq!(home.shown(&id)["queue"].as_array().unwrap().len(), 1);
}

/// No turn reports the failure, because the session cannot be opened: its folder is missing.
#[test]
fn continue_ends_with_the_queued_prompt_that_cannot_be_sent() {
    let home = Home::new();
    let folder = home.path().join("gone");
    std::fs::create_dir(&folder).unwrap();
    let id = home.said(&["new", "--cwd", folder.to_str().unwrap()]);
    let running = begin(&home, &["send", &id, "[[say so]][[hang]]"]);
    home.once_agent_spoke(&id);
    let waiting = begin(&home, &["send", &id, "--queue", "never sent"]);
    home.once(&id, |shown| {
        shown["queue"].as_array().is_some_and(|queue| queue.len() == 1)
    });
    for mut child in [running, waiting] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    home.kill_daemon();
    let text = "[[ask Really?]][[lose]]";
    let mut continued = Terminal::run_plain(&home, 80, &["continue", &id, "--text", text]);
    continued.until(ASKED);
    std::fs::remove_dir(&folder).unwrap();
    continued.type_in("y");
    let told = continued.exits(1);
    assert!(told.contains("there is no folder"), "{told}");
    assert_eq!(home.shown(&id)["queue"].as_array().unwrap().len(), 1);
    assert_eq!(home.run(&["send", &id, "again"]).status.code(), Some(1));
}

#[test]
fn continue_ends_as_send_does_if_the_session_cannot_be_reopened() {
    let home = Home::new();
    let id = home.said(&["new"]);
    home.said(&["send", &id, "[[lose]]"]);
    home.printed(&["continue", &id, "--text", "again"], 6);
    assert_eq!(home.run(&["send", &id, "again"]).status.code(), Some(6));
}
