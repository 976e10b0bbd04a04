package simulate

// accountRetry is the one account there is: the retry budget.
const accountRetry = "retry"

// take ends one permit and hears what its call showed.
func (t *gateTick) take(s *GateSettlement) {
	_, live := t.Permits[s.Permit]
	delete(t.Permits, s.Permit)
	if live {
		t.freed++
	}
	if s.Job != "" && t.Running[s.Job] == s.Permit {
		delete(t.Running, s.Job)
	}
	if !live {
		live = !t.takeBackCrash(s.Permit, s.Job)
	}
	if !s.Called && live && s.Back > 0 && t.Tat == s.Back && t.interval > 0 {
		t.Tat -= t.interval * s.Cost // the newest slot, not used: the line goes back
	}
	if s.Called && s.Job != "" && s.Outcome != "" {
		delete(t.Crash, s.Job)
	}
	if live && s.Account != "" {
		t.pay(s)
	}
	if s.Hold > 0 && t.now+s.Hold > t.Held {
		t.Held, t.Reason = t.now+s.Hold, "retry_after"
		if s.Capped {
			t.Cautious = "retry_after"
		}
	}
	t.credentials(s)
	if t.Probe == s.Permit {
		t.Probe, t.ProbeUntil, t.probed = "", 0, true
		if s.Called && s.Outcome == "failed" && t.Control.Phase == "half_open" && t.ProbeSince == t.Control.Since {
			t.ProbeNext = max(t.ProbeNext, t.now+gateAfterBad) // health has its time to say so
		}
	}
	if _, stands := t.Records[s.Record.Name]; s.Record.Name != "" && !stands {
		t.Records[s.Record.Name] = s.Record.Value
	}
}

// pay credits an account: a first attempt that succeeded earned, a permit that
// was not used gets its charge back.
func (t *gateTick) pay(s *GateSettlement) {
	a := t.Accounts[s.Account]
	switch {
	case s.Called && s.Credit > 0:
		a = t.Budget.Credit(a, t.now)
	case !s.Called && s.Credit > 0:
		a = t.Budget.Back(a, t.now)
	}
	t.Accounts[s.Account] = a
}

// credentials counts refusals of who we are, by different jobs in a row.
func (t *gateTick) credentials(s *GateSettlement) {
	hold := func() {
		if t.now+gateHold > t.Held {
			t.Held = t.now + gateHold
		}
	}
	switch {
	case s.Refused:
		who := s.Job
		if who == "" {
			who = s.Permit
		}
		t.Refused[who] = true
		if t.Cautious == "credentials" || len(t.Refused) >= gateRefusals {
			t.Cautious = "credentials"
			if t.now+gateHold > t.Held {
				hold()
				t.Reason = "credentials"
			}
		}
	case s.Called && s.Outcome == "ok":
		clear(t.Refused)
		if t.Cautious == "credentials" && t.Reason == "credentials" && t.Held > 0 {
			t.Held = 0
		}
		if t.Cautious != "" {
			t.Cautious, t.wakeAll = "", true
		}
	case s.Called && t.Cautious == "credentials" && s.Outcome != "excluded":
		hold()
	}
}
