//! A user chats with the real adapter in a terminal.

mod smoke {
    use std::fs;
    use std::process::Command;

    use bridge_protocol::ConversationId;
    use bridge_protocol::conversation::Settings;
    use serde_json::json;

    use crate::pty::Terminal;
    use crate::real_claude::bridge::Bridge;
    use crate::support::claude::Account;
    use crate::support::model_server::{model, tool_result, tool_use, user};

    /// The beginning of the chat's input prompt.
    const MARK: &str = "› ";

    /// The agent asks before it creates this file.
    const MAKES_A_FILE: &str = r#"[[tool Bash {"command":"echo made > made.txt\ncat made.txt","description":"make a file"}]] [[text told]]"#;

    fn chat(bridge: &Bridge, id: ConversationId) -> Terminal {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sessionctl"));
        command.args(["chat", &id.to_string()]);
        command
            .env("SESSIOND_HOME", bridge.home())
            .env("HOME", bridge.home());
        command.env("LANG", "C.UTF-8").current_dir(bridge.lab.project());
        let mut terminal = Terminal::of(100, &command);
        terminal.until(MARK);
        terminal
    }

    /// Types a line and waits until its echo has ended.
    fn enter(terminal: &mut Terminal, line: &str) {
        terminal.type_in(&format!("{line}\r"));
        terminal.until("\x1b[?2004l");
    }

    #[test]
    #[ignore = "installs the real adapter"]
    fn a_person_chats_approves_edits_and_undoes() {
        let bridge = or_skip!(Bridge::start(Account::Key));
        let id = bridge.conversation(Settings::default());
        let mut terminal = chat(&bridge, id);
        enter(&mut terminal, "[[text A **bold** word]]");
        terminal.until("A \x1b[1mbold\x1b[0m word");
        terminal.until(MARK);
        enter(&mut terminal, MAKES_A_FILE);
        // The whole command, including its line break, is shown before the question is answered.
        terminal.until("echo made > made.txt");
        terminal.until("cat made.txt");
        terminal.until("? helps");
        assert!(!bridge.lab.project().join("made.txt").exists());
        terminal.type_in("y");
        terminal.until("told");
        terminal.until(MARK);
        let made = bridge.lab.project().join("made.txt");
        assert!(made.exists());
        enter(&mut terminal, "/edit 1 [[text Otherwise]]");
        terminal.until("Otherwise");
        terminal.until("Replaced 2 turns");
        terminal.until(MARK);
        enter(&mut terminal, "/undo");
        terminal.until("Undid the edit");
        terminal.until(MARK);
        enter(&mut terminal, "next");
        terminal.until("ok: next");
        terminal.until(MARK);
        // The chat shows what an overwritten file loses, although the adapter does not send it.
        let (read, write) = (
            json!({"file_path": made}),
            json!({"file_path": made, "content": "other\n"}),
        );
        enter(
            &mut terminal,
            &format!("[[tool Read {read}]] [[tool Write {write}]] [[text written]]"),
        );
        terminal.until("Read made.txt  \x1b[2m1 made\x1b[0m");
        terminal.until("made.txt\x1b[0m  +1 -1");
        terminal.until("- made");
        terminal.until("? helps");
        terminal.type_in("y");
        terminal.until("written");
        terminal.until(MARK);
        assert_eq!(fs::read_to_string(made).unwrap(), "other\n");
        terminal.type_in("\x04");
        let (shown, code) = terminal.ended();
        assert_eq!(code, Some(0), "{shown:?}");

        let edited = [user("[[text Otherwise]]")];
        assert_eq!(bridge.lab.model.asked("Otherwise"), edited);
        let whole = [
            user("[[text A **bold** word]]"),
            model("A **bold** word"),
            user(MAKES_A_FILE),
            model("calling"),
            tool_use("Bash"),
            tool_result("made"),
            model("told"),
            user("next"),
        ];
        assert_eq!(bridge.lab.model.asked("next"), whole);
    }
}
