"""The bank of GS88 §1 as a live cluster: sites, tellers and ledgers are processes of their own."""
