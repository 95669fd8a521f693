use super::*;
use crate::transcript::summary::TITLE_CHARS;

const PROMPT: &str = r#"{"type":"user","uuid":"u1","parentUuid":null,"cwd":"/home/u/project","timestamp":"2026-11-03T12:00:00.000Z","origin":{"kind":"human"},"message":{"content":"\n  Mend the build \nand say how"}}"#;
const REPLY: &str = r#"{"type":"assistant","uuid":"a1","parentUuid":"u1","cwd":"/home/u/moved","timestamp":"2026-11-03T12:00:05.000Z","message":{"content":"done"}}"#;
const CUSTOM: &str = r#"{"type":"custom-title","customTitle":"The build","sessionId":"s"}"#;
const MADE: &str = r#"{"type":"summary","summary":"Mending a build","leafUuid":"a1"}"#;
const AI: &str = r#"{"type":"ai-title","aiTitle":"Mend the parser","sessionId":"s"}"#;

fn whole(lines: &[&str]) -> TranscriptSummary {
    let text = lines.join("\n") + "\n";
    summary(Ends {
        head: text.as_bytes(),
        tail: b"",
    })
}

#[test]
fn the_title_is_a_persons_else_the_agents_else_the_first_prompts() {
    let empty = r#"{"type":"custom-title","customTitle":""}"#;
    let newer = r#"{"type":"ai-title","aiTitle":"Mend the scanner"}"#;
    let taken_back = r#"{"type":"ai-title","aiTitle":""}"#;
    let quoted = r#"{"type":"user","uuid":"u2","origin":{"kind":"human"},"message":{"content":"say \"custom-title\""}}"#;
    let table: &[(&[&str], Option<&str>)] = &[
        (&[PROMPT, REPLY], Some("Mend the build")),
        (&[MADE, PROMPT, REPLY], Some("Mending a build")),
        (&[CUSTOM, PROMPT, REPLY, MADE], Some("The build")),
        (&[CUSTOM, PROMPT, empty], Some("Mend the build")),
        (&[PROMPT, AI], Some("Mend the parser")),
        (&[PROMPT, AI, MADE], Some("Mend the parser")),
        (&[CUSTOM, PROMPT, AI], Some("The build")),
        (&[PROMPT, AI, CUSTOM, empty], Some("Mend the parser")),
        (&[PROMPT, AI, newer], Some("Mend the scanner")),
        (&[MADE, PROMPT, AI, taken_back], Some("Mending a build")),
        (&[PROMPT, quoted], Some("Mend the build")),
        (&[REPLY], None),
        (&[], None),
    ];
    for (lines, title) in table {
        assert_eq!(whole(lines).title.as_deref(), *title, "{lines:?}");
    }
}

#[test]
fn what_was_said_last_is_told_where_there_is_no_title() {
    let noted = |prompt: &str| format!(r#"{{"type":"last-prompt","lastPrompt":{prompt},"leafUuid":"u1"}}"#);
    let (said, newer) = (noted(r#""Mend it""#), noted(r#""\n And again \nb""#));
    let (marked, none) = (noted(r#""<ide_opened_file>a</ide_opened_file>""#), noted("7"));
    let long = noted(&format!("{:?}", "p".repeat(TITLE_CHARS + 1)));
    let cut = "p".repeat(TITLE_CHARS);
    let quoted = REPLY.replace("done", r#"\"last-prompt\""#);
    let table: &[(&[&str], Option<&str>, Option<&str>)] = &[
        (&[PROMPT, &said], Some("Mend the build"), None),
        (&[REPLY, &said, CUSTOM], Some("The build"), None),
        (&[REPLY, &said, REPLY], None, Some("Mend it")),
        (&[REPLY, &said, &newer, &quoted], None, Some("And again")),
        (&[REPLY, &said, &marked, &none], None, Some("Mend it")),
        (&[REPLY, &long], None, Some(&cut)),
        (&[REPLY, &quoted], None, None),
    ];
    for (lines, title, last) in table {
        let summary = whole(lines);
        let told = (summary.title.as_deref(), summary.last_prompt.as_deref());
        assert_eq!(told, (*title, *last), "{lines:?}");
    }
}

/// What the vendor's library lists; `tests/real_claude` runs it over most of these.
#[test]
fn the_first_words_are_a_persons_not_what_stands_in_front_of_them() {
    let said = |content: &str| format!(r#"{{"type":"user","message":{{"content":{content}}}}}"#);
    let human = |content: &str| said(content).replacen('{', r#"{"origin":{"kind":"human"},"#, 1);
    let clear = said(r#""<command-name>/clear</command-name>\n<command-message>clear</command-message>""#);
    let init =
        said(r#""<command-message>init is analyzing</command-message>\n<command-name>/init</command-name>""#);
    let image = said(r#"[{"type":"image","source":{}}]"#);
    let question = said(r#""a question""#);
    let opened = r#"{"type":"text","text":"<ide_opened_file>a.rs</ide_opened_file>"}"#;
    let asked = r#"{"type":"text","text":"a question"}"#;
    let pasted = |id: &str| {
        said(&format!(
            r#""<pasted_content id=\"{id}\">\n\n a\nb\n</pasted_content id=\"{id}\">\n""#
        ))
    };
    let table: &[(Vec<String>, Option<&str>)] = &[
        (vec![human(&format!("[{opened},{asked}]"))], Some("a question")),
        (
            vec![said(&format!("[{opened}]")), question.clone()],
            Some("a question"),
        ),
        (
            vec![human(r#""<context>a</context> words""#), human(r#""do it""#)],
            Some("do it"),
        ),
        (vec![human(r#""<context>a</context> words""#)], None),
        (vec![human(r#"" \n<selection of=\"x\">words""#)], None),
        (
            vec![said(r#""<bash-input>ls </bash-input>""#), question.clone()],
            Some("! ls"),
        ),
        (
            vec![said(r#""<bash-stdout>a</bash-stdout>""#), question.clone()],
            Some("a question"),
        ),
        (vec![clear.clone()], Some("/clear")),
        (vec![init.clone(), clear.clone()], Some("/init")),
        (vec![clear.clone(), question.clone()], Some("a question")),
        (vec![image.clone()], Some("Image")),
        (vec![image.replace("image", "document")], Some("Document")),
        (vec![image.clone(), clear], Some("/clear")),
        (vec![image, question.clone()], Some("a question")),
        (
            vec![said(r#""[Request interrupted by user]""#), question.clone()],
            Some("a question"),
        ),
        (vec![said(r#""<Foo> is what?""#)], Some("<Foo> is what?")),
        (vec![said(r#""<3 it""#)], Some("<3 it")),
        (vec![said(r#""a <b> c""#)], Some("a <b> c")),
        (vec![pasted("00ff")], Some("a")),
        (vec![pasted("00f")], None),
        (vec![question.replacen('{', r#"{"isMeta":true,"#, 1)], None),
        (
            vec![question.replacen('{', r#"{"isCompactSummary":true,"#, 1)],
            None,
        ),
        (vec![question.replacen('{', r#"{"isSidechain":true,"#, 1)], None),
        (
            vec![said(
                r#"[{"type":"tool_result","tool_use_id":"t"},{"type":"text","text":"a"}]"#,
            )],
            None,
        ),
    ];
    for (lines, title) in table {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        assert_eq!(whole(&lines).title.as_deref(), *title, "{lines:?}");
    }
}
