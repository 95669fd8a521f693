//! Commands that show the history: `checkpoints`, and `history` with its pager.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Child, Command, Stdio};

use bridge_protocol::conversation::Conversation;
use bridge_protocol::history::{Checkpoint, HistoryGap, HistoryPage};
use bridge_protocol::method::{self, Method as _};
use bridge_protocol::{CheckpointId, ConversationId, ConversationRef, Cursor, UpstreamId};
use clap::Args;
use futures_util::future::{self, FutureExt as _, OptionFuture};

use super::{Context, collect_pages, count};
use crate::cli::advice::Advice;
use crate::cli::connect::Daemon;
use crate::cli::history_text::{HistoryRenderer, TurnHeadings, is_prompt};
use crate::cli::humanize::{self, Clock};
use crate::cli::log_error;
use crate::cli::output::{STRONG, one_line};
use crate::cli::problem::CommandResult;
use crate::cli::progress::with_progress;
use crate::cli::prompt_text::readable_prompt;
use crate::cli::select::ConversationArgs;
use crate::cli::signals::TerminalHandover;
use crate::cli::table::{Table, dim, left, plain, right};

/// How many messages are requested at once; this is the daemon's limit for a page.
const MESSAGE_PAGE: u32 = 1_000;

/// `checkpoints` and `history`.
#[derive(Debug, Args)]
pub(in crate::cli) struct HistoryArgs {
    #[command(flatten)]
    target: ConversationArgs,
    /// Show only the last COUNT entries (default: all)
    #[arg(long, short = 'n', value_name = "COUNT", allow_negative_numbers = true, value_parser = count)]
    last: Option<u32>,
}

impl HistoryArgs {
    fn max_entries(&self) -> usize {
        self.last.map_or(usize::MAX, |last| last as usize)
    }
}

/// Lists the turns of the history, newest first.
pub(in crate::cli) async fn checkpoints(context: &mut Context<'_>, past: HistoryArgs) -> CommandResult {
    let (daemon, conversation) = context.connect_and_select(past.target.name()).await?;
    context.note_earlier_session(past.target.name(), &conversation)?;
    let mut seen = MissingHistory::default();
    let listed = collect_turns(past.max_entries(), &conversation.id.into(), async |page| {
        let page = context.call_and_print(&daemon, page).await?;
        seen.add(page.kept, page.gaps);
        Ok(page.checkpoints)
    })
    .await?;
    let clock = Clock::here();
    let mut table = Table::new([
        right("TURN"),
        right("WHEN"),
        left("CHECKPOINT").optional(),
        left("PROMPT"),
    ]);
    for checkpoint in &listed {
        let at = checkpoint.at.map(|at| clock.age_or_date(at, context.output.look));
        // A prompt without text, such as a picture.
        let prompt = match one_line(&readable_prompt(&checkpoint.prompt)) {
            empty if empty.is_empty() => dim("[no text]"),
            prompt => plain(prompt),
        };
        table.row([
            (checkpoint.step.to_string(), STRONG),
            dim(at.unwrap_or_else(|| "-".to_owned())),
            dim(checkpoint.id.as_str()),
            prompt,
        ]);
    }
    let no_turns = seen.no_turns(&conversation, &context.output.advice(conversation.id));
    context.output.table(&table, &no_turns)?;
    seen.report(context)
}

/// Shows the messages of a conversation.
pub(in crate::cli) async fn history(context: &mut Context<'_>, past: HistoryArgs) -> CommandResult {
    let (daemon, conversation) = context.connect_and_select(past.target.name()).await?;
    context.note_earlier_session(past.target.name(), &conversation)?;
    let id = conversation.id;
    let is_paged = !context.output.json && context.output.look.columns.is_some();
    let (mut seen, mut renderer) = (
        MissingHistory::default(),
        HistoryRenderer::new(context.output.look),
    );
    let mut pager = if is_paged {
        Pager::start(Stdio::inherit())
    } else {
        None
    };
    let mut is_cut = false;
    // Requested together with the first page, because both read the same transcript.
    let mut steps = is_paged.then(|| steps(&daemon, id, past.max_entries()).boxed_local());
    let shown = collect_pages(past.max_entries(), async |cursor: Option<Cursor>, limit| {
        let is_first = cursor.is_none();
        let call = method::History {
            last: past.last.filter(|_| is_first),
            cursor,
            limit,
            ..method::History::of(id)
        };
        let call = with_progress(
            context.output,
            &daemon,
            method::History::NAME,
            daemon.call_raw(call),
        );
        let (page, steps) = future::join(call, OptionFuture::from(steps.take())).await;
        let (mut page, raw) = page?;
        let counted = page.messages.len();
        if past.last.is_some() && is_first && !context.output.json {
            extend_to_prompt(&daemon, id, &mut page).await?;
            is_cut = page.previous_cursor.is_some();
        }
        if let Some(steps) = steps {
            let clock = Clock::here();
            renderer.show_turns(TurnHeadings { steps, clock });
        }
        seen.add(page.kept, page.gaps);
        let wants_more = match &mut pager {
            _ if context.output.json => context.output.raw(&raw).map(|()| true)?,
            Some(pager) => pager.write(&renderer.page(page.messages)),
            None => context
                .output
                .text(&renderer.page(page.messages))
                .map(|()| true)?,
        };
        // The messages were printed already; only their number is needed.
        Ok((vec![(); counted], page.next_cursor.filter(|_| wants_more)))
    })
    .await;
    // Print the rest even if the connection was lost: the user still reads the messages that arrived.
    let rest = renderer.rest();
    match pager {
        Some(mut pager) => {
            pager.write(&rest);
            pager.wait();
        }
        None => context.output.text(&rest)?,
    }
    let advice = context.output.advice(id);
    if shown?.0.is_empty() {
        context.output.note(&seen.no_turns(&conversation, &advice))?;
    }
    if is_cut {
        let all = advice.history();
        let line = format!("earlier messages are not shown; to see all: {all}");
        context.output.note(&line)?;
    }
    seen.report(context)
}

/// Extends the first page back to a prompt, so that no reply is shown without its prompt.
async fn extend_to_prompt(daemon: &Daemon, id: ConversationId, page: &mut HistoryPage) -> CommandResult {
    while page.messages.first().is_some_and(|first| !is_prompt(first))
        && let Some(cursor) = page.previous_cursor.take()
    {
        let earlier = method::History {
            cursor: Some(cursor.clone()),
            limit: Some(MESSAGE_PAGE),
            ..method::History::of(id)
        };
        let mut earlier = daemon.call(earlier).await?;
        let from = earlier.messages.iter().rposition(is_prompt).unwrap_or_default();
        let mut messages = earlier.messages.split_off(from);
        messages.append(&mut page.messages);
        page.messages = messages;
        // Earlier messages remain if there is a page before that one, or if only a part of it was added.
        page.previous_cursor = earlier.previous_cursor.or((from > 0).then_some(cursor));
    }
    Ok(())
}

/// The numbers of the last turns, as `checkpoints` lists them. Turns that cannot be read have no number.
async fn steps(daemon: &Daemon, id: ConversationId, most: usize) -> BTreeMap<CheckpointId, u64> {
    let listed = turns(daemon, &id.into(), most).await.unwrap_or_default();
    listed.into_iter().map(|one| (one.id, one.step)).collect()
}

/// The last turns, newest first.
pub(in crate::cli) async fn turns(
    daemon: &Daemon,
    conversation: &ConversationRef,
    most: usize,
) -> CommandResult<Vec<Checkpoint>> {
    collect_turns(most, conversation, async |page| {
        Ok(daemon.call(page).await?.checkpoints)
    })
    .await
}

/// Collects the last turns, newest first. `page` reads one page of them.
async fn collect_turns(
    most: usize,
    conversation: &ConversationRef,
    mut page: impl AsyncFnMut(method::Checkpoints) -> CommandResult<Vec<Checkpoint>>,
) -> CommandResult<Vec<Checkpoint>> {
    let listed = collect_pages(most, async |before, limit| {
        let call = method::Checkpoints {
            conversation_id: conversation.clone(),
            before,
            limit,
        };
        let turns = page(call).await?;
        let oldest = turns.last().filter(|oldest| oldest.step > 1);
        let before = oldest.map(|oldest| oldest.id.clone());
        Ok((turns, before))
    });
    listed.await.map(|(listed, _)| listed)
}

/// What is missing from the pages of a history, and which sessions were read from backups.
#[derive(Default)]
struct MissingHistory {
    kept: BTreeSet<UpstreamId>,
    gaps: Vec<HistoryGap>,
}

impl MissingHistory {
    fn add(&mut self, kept: Vec<UpstreamId>, gaps: Vec<HistoryGap>) {
        self.kept.extend(kept);
        // Each page repeats the gaps.
        let gaps = gaps.into_iter().filter(|gap| !self.gaps.contains(gap));
        self.gaps.extend(gaps.collect::<Vec<_>>());
    }

    /// The message if no turn was listed, either because there is none or because none can be read.
    fn no_turns(&self, conversation: &Conversation, advice: &Advice) -> String {
        match (self.gaps.is_empty(), cut_short_hint(conversation, advice)) {
            // An edit or a fork in place that was cut short has left the turns behind.
            (true, Some(hint)) if conversation.chain_length > 1 => {
                let undo = advice.undo();
                format!("no turns; {hint}; go back to the earlier turns: {undo}")
            }
            (true, Some(hint)) => format!("no turns; {hint}"),
            (true, None) => {
                let send = advice.send("Hello");
                format!("no turns yet; send the first prompt: {send}")
            }
            (false, _) => format!("no turn can be read; {}", lost_hint(advice)),
        }
    }

    fn report(self, context: &mut Context<'_>) -> CommandResult {
        note_backups(context, &Vec::from_iter(self.kept))?;
        let mut gaps = self.gaps.iter();
        gaps.try_for_each(|gap| warn_incomplete(context, &gap.upstream_id, &gap.detail))
    }
}

/// What to do about a last turn that was cut short, whose session may have no turns yet.
pub(super) fn cut_short_hint(conversation: &Conversation, advice: &Advice) -> Option<String> {
    let hint = format!(
        "the last turn was cut short; continue it: {}",
        advice.continue_turn("")
    );
    conversation.cut_short.then_some(hint)
}

/// The hint for a missing transcript without a backup.
pub(in crate::cli) fn lost_hint(advice: &Advice) -> String {
    format!(
        "if its transcript is missing, put it back, or start an empty session (can be undone): sessionctl reset {}",
        advice.conversation
    )
}

/// Warns that a part of a session's history is missing.
pub(super) fn warn_incomplete(
    context: &mut Context<'_>,
    session: &UpstreamId,
    detail: &str,
) -> CommandResult {
    let session = humanize::short(session.as_str());
    let what = format!("session {session}: {}", one_line(detail));
    context.output.warning("incomplete:", &what)
}

/// Prints which sessions were read from backups.
pub(super) fn note_backups(context: &mut Context<'_>, kept: &[UpstreamId]) -> CommandResult {
    if kept.is_empty() {
        return Ok(());
    }
    let sessions: Vec<String> = kept.iter().map(|id| humanize::short(id.as_str())).collect();
    let sessions = sessions.join(", ");
    context.output.note_dim(&format!(
        "read from the backup of session {sessions}: the agent's transcript is missing"
    ))
}

/// A program that shows long text a screen at a time.
pub(in crate::cli) struct Pager {
    child: Child,
    /// The pager reads the same terminal as this process.
    _handover: TerminalHandover,
}

impl Pager {
    /// Starts `$PAGER`, or `less` if it is not set, with this output. Returns `None` if the program does not start or `$PAGER`
    /// is empty.
    pub(in crate::cli) fn start(output: impl Into<Stdio>) -> Option<Self> {
        let wanted = std::env::var("PAGER").ok();
        let mut command = match wanted.as_deref().map(str::trim) {
            Some("") => return None,
            // Like in other programs, `$PAGER` is a command line.
            Some(line) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", line]);
                shell
            }
            None => Command::new("less"),
        };
        if std::env::var_os("LESS").is_none() {
            // Exit at once if the text fits on the screen, show colours, keep the text on the screen.
            command.env("LESS", "FRX");
        }
        let lent = TerminalHandover::begin();
        let child = command.stdin(Stdio::piped()).stdout(output).spawn().ok()?;
        Some(Self {
            child,
            _handover: lent,
        })
    }

    /// Writes text to the pager. Returns false if the user has left it.
    pub(in crate::cli) fn write(&mut self, text: &str) -> bool {
        let input = self.child.stdin.as_mut();
        input.is_some_and(|input| input.write_all(text.as_bytes()).is_ok())
    }

    /// Waits until the user leaves the pager. Returns false if the program failed; it may have shown nothing then.
    pub(in crate::cli) fn wait(mut self) -> bool {
        drop(self.child.stdin.take());
        self.child.wait().is_ok_and(|ended| ended.success())
    }
}

impl Drop for Pager {
    /// Waits for the pager to end. Until then, this process must not read from the terminal.
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        log_error("the pager could not be waited for", self.child.wait());
    }
}
