//! An agent dies while a process that it started keeps writing to its stdout, faster than the daemon reads.

use bridge_protocol::error::ErrorKind;
use bridge_protocol::turn::FailureKind;

use crate::home::Home;

#[tokio::test]
async fn a_descendant_that_floods_the_output_does_not_hide_the_death_of_the_agent() {
    let script = r#"while read -r line; do
    id=${line#*\"id\":}; id=${id%%[,\}]*}
    case $line in
        *'"initialize"'*) result='{"protocolVersion":1,"agentCapabilities":{}}' ;;
        *'"session/prompt"'*) setsid yes "flood" & echo 'the licence has run out' >&2; exit 3 ;;
        *) result="{\"sessionId\":\"s$$\"}" ;;
    esac
    printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done"#;
    let home = Home::with_config(&format!(
        "[agents.flooding]\ncommand = \"/bin/sh\"\nargs = [\"-c\", {script:?}]\n"
    ));
    let (_daemon, app) = home.opened().await;
    let id = app.make_of(&home.project(), "flooding").await;
    let told = match app.try_send(id, "x").await {
        Ok(turn) => {
            let failure = turn.failure.unwrap();
            assert_eq!(failure.kind, FailureKind::AgentDied, "{failure:?}");
            failure.message
        }
        Err(error) => {
            assert_eq!(error.kind, ErrorKind::AgentUnavailable, "{error:?}");
            error.message
        }
    };
    assert!(told.contains("the licence has run out"), "{told}");
}
