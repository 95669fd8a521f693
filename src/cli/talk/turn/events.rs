//! Updates the view of a conversation for each event, and prints it.
//!
//! It decides which events belong to the followed turn, and what is printed about the others. It must not wait for events: the
//! loop in `turn` does.

use std::path::Path;

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::{Conversation, ConversationState, Settings};
use bridge_protocol::event::Event;
use bridge_protocol::history::{HistoryForm, HistoryUpdate};
use bridge_protocol::link::{Fidelity, Resumed, RollCause};
use bridge_protocol::method;
use bridge_protocol::raw::PromptContent;
use bridge_protocol::turn::{Interrupt, TurnResult};

use super::{ConversationFollower, FollowTarget, FollowedTurn, is_running};
use crate::cli::connect::Daemon;
use crate::cli::event_stream::ReceivedEvent;
use crate::cli::humanize::{self, Clock};
use crate::cli::output::{ATTENTION, DIM, Look, STRONG, one_line};
use crate::cli::problem::{CommandResult, Exit, Problem};
use crate::cli::prompt_text::readable_prompt;
use crate::paths::shell_word;

/// How many messages of the last turn are shown, from its end.
const SHOWN_MESSAGES: u32 = 200;

/// Says that turns may be missing. `history` is the command that shows them.
pub(in crate::cli::talk) fn turns_missing(history: &str) -> String {
    format!("turns may be missing here; read them with: {history}")
}

/// Describes how the mode and the model differ from those that were known, which are updated. The first snapshot of a
/// subscription only updates them: it also has what this terminal changed.
pub(in crate::cli::talk) fn changed_settings(
    event: &Event,
    known: &mut Settings,
    look: Look,
) -> Option<String> {
    let (now, is_change) = match event {
        Event::Updated { conversation } => (&conversation.settings, true),
        Event::Snapshot {
            conversation, gap, ..
        } => (&conversation.settings, *gap),
        _ => return None,
    };
    let before = std::mem::replace(known, now.clone());
    let arrow = look.sign("→", "->");
    let settings = [
        ("mode", before.mode, &now.mode),
        ("model", before.model, &now.model),
    ];
    let changed = settings.into_iter().filter_map(|(key, old, new)| {
        let (old, new) = old.as_ref().zip(new.as_ref()).filter(|(old, new)| old != new)?;
        Some(format!("{key} {} {arrow} {}", one_line(old), one_line(new)))
    });
    let changed: Vec<String> = changed.collect();
    (is_change && !changed.is_empty()).then(|| format!("Changed: {}", changed.join(", ")))
}

/// Describes how another client changed the history or the folder.
pub(in crate::cli::talk) fn describe_other_clients_change(
    event: &Event,
    id: ConversationId,
) -> Option<String> {
    Some(match event {
        Event::Edited { dropped, .. } => {
            format!(
                "Another client replaced {}",
                humanize::count(*dropped, "turn", "turns")
            )
        }
        Event::Forked { conversation_id, .. } if *conversation_id == id => {
            "Another client rewound the conversation".to_owned()
        }
        Event::Undone { .. } => "Another client undid the last change".to_owned(),
        Event::Moved { to, .. } => format!("Another client moved the conversation to {}", one_line(to)),
        Event::Reset {} => "Another client reset the conversation".to_owned(),
        _ => return None,
    })
}

impl ConversationFollower<'_> {
    /// Reports that a turn that waited for its limit's reset, or a scheduled prompt, was dropped because this prompt ran first.
    pub(super) async fn report_displaced_turn(
        &mut self,
        daemon: &Daemon,
        waiting: &Conversation,
    ) -> CommandResult {
        // The user can look at the conversation later.
        let Ok(now) = daemon.call(method::GetConversation::of(self.id)).await else {
            return Ok(());
        };
        if now.conversation.cut_short || now.conversation.continuation.is_some() {
            return Ok(());
        }
        let clock = Clock::here();
        let scheduled = waiting
            .continuation
            .as_ref()
            .map(|it| clock.time_and_distance(it.at));
        let what = match (waiting.cut_short, scheduled) {
            (true, Some(at)) => {
                format!(
                    "the turn that was cut short will not be continued at {at}: this prompt was answered first"
                )
            }
            (true, None) => {
                "the turn that was cut short can no longer be continued: this prompt was answered first"
                    .to_owned()
            }
            (false, Some(at)) => {
                format!(
                    "the prompt that was scheduled for {at} will not be sent: this prompt was answered first"
                )
            }
            (false, None) => return Ok(()),
        };
        self.screen.note_dim(&what)
    }

    /// Processes an event, and prints it if it belongs to what is followed.
    pub(super) fn handle_event(
        &mut self,
        followed: &ReceivedEvent,
        start: &FollowTarget,
        own: &mut FollowedTurn,
    ) -> CommandResult {
        let event = &followed.envelope.event;
        let watches = start.is_watch_only();
        let look = self.screen.output.note_look;
        if let Some(what) = changed_settings(event, &mut self.settings, look)
            && (watches || self.screen.output.in_chat)
        {
            self.screen.note_dim(&what)?;
        }
        match event {
            Event::PromptAccepted { turn_id, prompt } => {
                // Another client's prompt may be accepted first, even one with the same text; its turn ends before the answer
                // to this prompt arrives.
                let may_be_own = own.id.is_none() || own.has_ended;
                let is_same = |own: &PromptContent| own.to_text() == prompt.to_text();
                let is_own = watches || (may_be_own && start.sent_prompt().is_none_or(is_same));
                if !is_own {
                    return Ok(());
                }
                own.id = Some(turn_id.clone());
                own.has_ended = false;
                if watches || matches!(start, FollowTarget::Since(_)) {
                    self.show_prompt(&prompt.to_text())?;
                }
                self.screen.start_spinner();
                Ok(())
            }
            Event::Update { turn_id, update } if watches || (turn_id.is_some() && *turn_id == own.id) => {
                self.screen.show_update(update)
            }
            Event::TurnEnded { turn } if watches => {
                own.id = None;
                self.show_turn_end(turn)
            }
            Event::TurnEnded { turn } => {
                if own.id.as_ref() == Some(&turn.turn_id) {
                    own.has_ended = true;
                    own.result = Some(turn.clone());
                }
                Ok(())
            }
            // No queued prompt follows.
            Event::StateChanged { state }
                if matches!(start, FollowTarget::Since(_)) && own.id.is_none() && !is_running(*state) =>
            {
                own.has_ended = true;
                Ok(())
            }
            Event::Snapshot { .. } => self.handle_snapshot(event, start, own),
            Event::Updated { conversation } if watches => self.report_queue_length(conversation),
            // The continuation failed before it became a turn.
            Event::Updated { conversation }
                if matches!(start, FollowTarget::Continue(_))
                    && own.id.is_none()
                    && conversation.continuation.is_none()
                    && conversation.state == ConversationState::Failed =>
            {
                self.unsent_problem(conversation).map_or(Ok(()), Err)
            }
            Event::InterruptRaised { interrupt } if own.id.is_none() && !watches => {
                self.report_unrelated_questions([interrupt])
            }
            Event::InterruptRaised { interrupt } => {
                self.questions.push_back(interrupt.clone());
                match self.questions.len() {
                    1 => self.ask_first_question(),
                    _ => Ok(()),
                }
            }
            Event::InterruptResolved { interrupt_id, by, .. } => {
                self.question_resolved(interrupt_id, by)?;
                // The turn that an answer starts is accepted before the question is resolved.
                if matches!(start, FollowTarget::Running) && own.id.is_none() && self.questions.is_empty() {
                    self.was_question_refused = true;
                    own.has_ended = true;
                }
                Ok(())
            }
            // A queued prompt reports it at its end, because this event may be about an earlier turn.
            Event::Resumed { resumed } if start.queued_prompt().is_none() => self.report_resume(resumed),
            Event::ForeignWriter { upstream_id } => {
                let session = humanize::short(upstream_id.as_str());
                let what = format!(
                    "another program changed the transcript of session {session}: close one of the two, or answers are \
                     lost; to see this session's history: {}",
                    self.advice().history()
                );
                self.screen.note_styled(ATTENTION, &what)
            }
            Event::Rolled {
                from: Some(from),
                to,
                cause: RollCause::Cleared,
                ..
            } => {
                let what = format!(
                    "Started session {}. Go back to {} with: {}",
                    humanize::short(to.as_str()),
                    humanize::short(from.as_str()),
                    self.advice().undo()
                );
                self.screen.note_dim(&what)
            }
            Event::Closed {} if watches => self
                .screen
                .note_dim("the session was closed; the next prompt reopens it"),
            Event::Deleted {} => {
                own.has_ended = true;
                self.screen.note_dim("the conversation was deleted")
            }
            event if watches => match describe_other_clients_change(event, self.id) {
                Some(what) => self.screen.note_dim(&what),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// The problem of a prompt that the daemon could not send on its own, if that is why the conversation rests: no turn reports
    /// it. The exit code is that of a command which sends the prompt itself.
    pub(in crate::cli::talk) fn unsent_problem(&self, conversation: &Conversation) -> Option<Problem> {
        let again = self.advice().continue_turn("");
        let is_missing = !Path::new(&conversation.cwd).exists();
        let (exit, hint) = match conversation.state {
            ConversationState::Limited => {
                let reset = self.advice().continue_turn("--at-reset");
                (Exit::Limited, format!("continue at the reset with: {reset}"))
            }
            ConversationState::Failed => {
                let exit = if is_missing { Exit::Failed } else { Exit::Agent };
                let hint = match is_missing && !self.screen.output.in_chat {
                    true => format!("mkdir -p {} && {again}", shell_word(&conversation.cwd)),
                    false => format!("once that is fixed: {again}"),
                };
                (exit, hint)
            }
            _ => return None,
        };
        let why = conversation.failure.as_deref();
        Some(Problem::new(exit, one_line(why.unwrap_or("the prompt could not be sent"))).hint(hint))
    }

    /// Processes the conversation's current state, which arrives at the start and after events were missed.
    fn handle_snapshot(
        &mut self,
        event: &Event,
        start: &FollowTarget,
        own: &mut FollowedTurn,
    ) -> CommandResult {
        let Event::Snapshot {
            conversation,
            gap,
            running,
            ..
        } = event
        else {
            return Ok(());
        };
        let watches = start.is_watch_only();
        let running = running.as_ref();
        let running_id = running.map(|running| &running.turn_id);
        let open = &conversation.interrupts;
        let is_of_others = matches!(start, FollowTarget::Running | FollowTarget::Since(_));
        // Another client has continued the turn already.
        let is_continued = matches!(start, FollowTarget::Continue(_))
            && running
                .is_some_and(|running| humanize::mark_daemon_prompt(&running.prompt.to_text()).is_some());
        let follows_running = watches || ((is_of_others || is_continued) && own.id.is_none());
        let is_own = follows_running || (own.id.is_some() && own.id.as_ref() == running_id);
        match &own.id {
            _ if watches => own.id = running_id.cloned(),
            None if follows_running => {
                own.id = running_id.cloned();
                own.has_ended = own.id.is_none() && open.is_empty();
            }
            None => {}
            // The connection was lost and the missed events are no longer available: a turn that is not running has ended.
            Some(_) => own.has_ended = !is_own,
        }
        self.folder.clone_from(&conversation.cwd);
        if matches!(start, FollowTarget::Prompt(_)) && own.id.is_none() {
            let is_limited = conversation.cut_short && conversation.limit.is_some();
            let waits = is_limited || conversation.continuation.is_some();
            // If a turn is running, it may be the one that was waiting.
            self.waiting_before = Some(conversation.clone()).filter(|_| waits && running.is_none());
        }
        if watches && self.last_turn_pending.is_some() {
            let history = self.advice().history();
            self.screen.note_dim(&turns_missing(&format!("{history} -n 2")))?;
        } else if *gap && is_own {
            self.screen.note_dim("some of the output was missed")?;
        }
        if watches {
            let title = one_line(&conversation.title);
            let (id, state) = (
                humanize::short_id(conversation.id),
                humanize::wire_name(conversation.state),
            );
            self.screen.note_dim(&format!("{id} {title} ({state})"))?;
            self.reported_queue_length = 0;
            self.report_queue_length(conversation)?;
            let is_shown = running.is_none() && !self.screen.output.json;
            self.last_turn_pending.get_or_insert(is_shown);
        }
        match running {
            Some(running) if is_own && (start.method().is_none() || is_continued) => {
                self.show_prompt(&running.prompt.to_text())?;
                self.screen.start_spinner();
                for update in &running.updates {
                    self.screen.show_update(update)?;
                }
            }
            Some(_) if !is_own && start.queued_prompt().is_some() => {
                self.screen
                    .note_dim("another turn is running; this prompt is queued")?;
            }
            None if follows_running && !watches && !open.is_empty() => {
                self.screen
                    .note_dim("the turn was cut short; its question is still open")?;
            }
            _ => {}
        }
        self.questions.clear();
        self.reported_questions.clear();
        match is_own {
            true => self.questions.extend(open.iter().cloned()),
            // Questions of this command's turn are asked again once it is known how the turn ended.
            false if own.id.is_some() => {}
            false => {
                // An accepted edit withdraws the questions of earlier turns.
                let is_edit = matches!(start, FollowTarget::Edit(_));
                let stays = |question: &&Interrupt| !(is_edit && question.orphaned);
                self.report_unrelated_questions(open.iter().filter(stays))?;
            }
        }
        let place = |question: &Interrupt| self.priority_question.as_ref() != Some(&question.id);
        self.questions.make_contiguous().sort_by_key(place);
        self.ask_first_question()
    }

    /// Shows the last turn of a conversation in which no turn runs, as it looked while it ran.
    pub(super) async fn show_last_turn(&mut self) -> CommandResult {
        let updates = self.last_updates().await?;
        let Some(turn) = updates.last().map(|update| update.checkpoint_id.clone()) else {
            return Ok(());
        };
        for update in updates.iter().filter(|update| update.checkpoint_id == turn) {
            match self.screen.prompt_in_update(&update.update) {
                Some(prompt) => self.show_prompt(&prompt)?,
                None => self.screen.show_update(&update.update)?,
            }
        }
        self.screen.end_turn()
    }

    /// Shows the answer to a prompt, from the history. The prompt is known by its words: if none or several of the last prompts have
    /// them, prints the command that shows the history.
    pub(super) async fn show_turn_of(&mut self, prompt: &PromptContent) -> CommandResult {
        let updates = self.last_updates().await?;
        let prompt = prompt.to_text();
        let is_it = |update: &&HistoryUpdate| {
            let words = self.screen.prompt_in_update(&update.update);
            words.is_some_and(|words| readable_prompt(&words).trim() == prompt.trim())
        };
        let found: Vec<_> = updates.iter().filter(is_it).collect();
        let [begin] = &found[..] else {
            let history = self.advice().history();
            let missed = format!("the answer was missed; read it with: {history}");
            return self.screen.note_styled(ATTENTION, &missed);
        };
        let turn = begin.checkpoint_id.clone();
        for update in updates.iter().filter(|update| update.checkpoint_id == turn) {
            if self.screen.prompt_in_update(&update.update).is_none() {
                self.screen.show_update(&update.update)?;
            }
        }
        Ok(())
    }

    /// The last updates of the history; none if it cannot be read, which does not prevent following.
    async fn last_updates(&mut self) -> CommandResult<Vec<HistoryUpdate>> {
        let call = method::History {
            conversation_id: self.id.into(),
            last: Some(SHOWN_MESSAGES),
            r#as: HistoryForm::Updates,
            ..Default::default()
        };
        let daemon = self.daemon();
        match self.wait_unless_left(daemon.call(call)).await {
            Err(left) if self.has_user_left => Err(left),
            page => Ok(page.ok().and_then(|page| page.updates).unwrap_or_default()),
        }
    }

    /// Reports the end of a turn that is only watched.
    fn show_turn_end(&mut self, turn: &TurnResult) -> CommandResult {
        self.screen.end_turn()?;
        self.screen.usage_line()?;
        match self.problem_of(turn) {
            Some(problem) => {
                let text = self.screen.output.note_look.paint(ATTENTION, &problem.text());
                self.screen.note(&text)
            }
            None => Ok(()),
        }
    }

    fn show_prompt(&mut self, prompt: &str) -> CommandResult {
        let prompt = one_line(&readable_prompt(prompt));
        match humanize::mark_daemon_prompt(&prompt) {
            Some(own) => self.screen.note_styled(DIM, &own),
            None => {
                let prompt = self.screen.output.note_look.paint(STRONG, &format!("> {prompt}"));
                self.screen.note(&prompt)
            }
        }
    }

    /// Prints how many prompts are queued, if the number has changed.
    fn report_queue_length(&mut self, conversation: &Conversation) -> CommandResult {
        let queued = conversation.queue.len();
        if std::mem::replace(&mut self.reported_queue_length, queued) == queued || queued == 0 {
            return Ok(());
        }
        let prompts = humanize::count(queued as u64, "prompt is", "prompts are");
        self.screen.note_dim(&format!("{prompts} queued"))
    }

    /// Reports how the session was reopened, if part of its history is missing and this was not reported yet.
    pub(super) fn report_resume(&mut self, resumed: &Resumed) -> CommandResult {
        if resumed.fidelity == Fidelity::Full || std::mem::replace(&mut self.has_reported_resume, true) {
            return Ok(());
        }
        let result = humanize::resume_result(resumed, &self.advice());
        self.screen.note_styled(ATTENTION, &result)
    }
}
